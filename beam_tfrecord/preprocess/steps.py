"""Declarative steps as values: what is done to which columns, checked before any data is read.

A step is ``{"op": …, "columns": […], …options}`` in Python and in JSON, and ``op=A,B:option=value``
on the command line. Steps of one column follow each other in the order they are given. What each
one means for missing values, NaN and the like is told in `functions.py`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from beam_tfrecord.errors import UsageError

# What a column holds on its way through the steps.
INTEGER, FLOAT, TEXT, INDEX, VECTOR, EMPTY, OTHER = (
    *("integer", "float", "text", "index", "vector", "empty", "other"),
)
NUMBERS = (INTEGER, FLOAT, INDEX, EMPTY)
CATEGORIES = (INTEGER, TEXT, INDEX, EMPTY)

IMPUTE_WAYS = ("mean", "median", "most_frequent", "constant")


@dataclasses.dataclass(frozen=True)
class Op:
    """What an operation takes.

    Attributes:
        options: Its options and the Python types of their values.
        takes: Kinds of column.
        required: Options without a default.
        lists: Whether it works on every value of a list.
    """

    options: Mapping[str, tuple[type, ...]]
    takes: tuple[str, ...]
    required: tuple[str, ...] = ()
    lists: bool = True


_NUMBER = (int, float)
OPS: dict[str, Op] = {
    "impute": Op({"how": (str,), "value": (int, float, str)}, (*NUMBERS, TEXT), (), False),
    "drop_null": Op({}, (*NUMBERS, TEXT, OTHER)),
    "zscore": Op({}, NUMBERS),
    "minmax": Op({}, NUMBERS),
    "bucketize": Op({"buckets": (int,), "boundaries": (list, tuple)}, NUMBERS),
    "one_hot": Op({"top_k": (int,), "min_count": (int,)}, CATEGORIES, (), False),
    "vocabulary": Op({"top_k": (int,), "min_count": (int,), "oov_buckets": (int,)}, CATEGORIES),
    "embed": Op(
        {"matrix": (str,), "width": (int,), "write": (str,)},
        (INTEGER, INDEX, EMPTY),
        ("matrix",),
        False,
    ),
    "hash": Op({"buckets": (int,)}, CATEGORIES, ("buckets",)),
    "clip": Op({"low": _NUMBER, "high": _NUMBER}, NUMBERS),
    "log1p": Op({}, NUMBERS),
}
_LEAST = {"buckets": 2, "top_k": 1, "min_count": 1, "oov_buckets": 0, "width": 1}


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation on some columns.

    Attributes:
        op: Its name.
        columns: The columns, each on its own.
        options: The options that are given.
    """

    op: str
    columns: tuple[str, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.op not in OPS:
            near = difflib.get_close_matches(self.op, OPS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the steps are {', '.join(OPS)}"
            raise UsageError(f"there is no step {self.op!r}: {hint}")
        if not self.columns:
            raise UsageError(f"step {self.op} names no column: add columns to it")
        _check_options(self)

    def __str__(self) -> str:
        options = "".join(f":{name}={value}" for name, value in self.options.items())
        return f"{self.op}={','.join(self.columns)}{options}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the step."""
        return {"op": self.op, "columns": list(self.columns), **self.options}


def steps_from_json(value: Any, *, where: str = "steps") -> tuple[Step, ...]:
    """Read a list of JSON objects, or of steps; `where` names it in errors.

    Raises:
        UsageError: It is not a list of steps.
    """
    if not isinstance(value, list | tuple):
        raise UsageError(f'{where} is not a list of steps: write [{{"op": …, "columns": […]}}]')
    return tuple(one if isinstance(one, Step) else _step(one, where) for one in value)


def load_steps(path: str) -> tuple[Step, ...]:
    """Read a file of steps.

    Raises:
        UsageError: It is not there, not JSON, or not a list of steps.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return steps_from_json(json.load(file), where=path)
    except OSError as error:
        raise UsageError(f"cannot read steps {path!r}: {str(error.strerror).lower()}") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from error


def parse_step(text: str) -> Step:
    """Read a step as it is typed: ``impute=fare,tip:how=median``.

    Raises:
        UsageError: It is of another form.
    """
    head, *options = text.split(":")
    op, equals, columns = head.partition("=")
    pairs = [option.partition("=") for option in options]
    if not equals or not all(separator for _, separator, _ in pairs):
        raise UsageError(f"cannot read step {text!r}: write op=A,B or op=A,B:option=value")
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    return Step(op.strip(), names, {name.strip(): _typed(value) for name, _, value in pairs})


def _typed(text: str) -> Any:
    """Return a number or a list where the text is one in JSON, else the text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, int | float | list) else text


def _step(value: Any, where: str) -> Step:
    if not isinstance(value, Mapping) or "op" not in value or "columns" not in value:
        raise UsageError(f"{where}: a step needs op and columns: {value!r:.80}")
    columns = value["columns"]
    if isinstance(columns, str):
        columns = [columns]
    options = {key: one for key, one in value.items() if key not in ("op", "columns")}
    return Step(str(value["op"]), tuple(columns), options)


def _check_options(step: Step) -> None:
    op, options = OPS[step.op], step.options
    value: Any
    for name, value in options.items():
        if name not in op.options:
            known = f"its options are {', '.join(op.options)}" if op.options else "it has none"
            raise UsageError(f"step {step.op} has no option {name!r}: {known}")
        if not isinstance(value, op.options[name]) or isinstance(value, bool):
            kinds = " or ".join(kind.__name__ for kind in op.options[name])
            raise UsageError(f"option {name} of step {step.op} is {value!r}: give {kinds}")
        if name in _LEAST and options[name] < _LEAST[name]:
            raise UsageError(f"option {name} of step {step.op} is {value}: at least {_LEAST[name]}")
    for name in op.required:
        if name not in options:
            raise UsageError(f"step {step.op} of {', '.join(step.columns)} needs {name}")
    _CHECKS.get(step.op, lambda _: None)(options)


def _check_impute(options: Mapping[str, Any]) -> None:
    how = options.get("how", "constant" if "value" in options else "mean")
    if how not in IMPUTE_WAYS:
        raise UsageError(f"impute has no way {how!r}: choose {', '.join(IMPUTE_WAYS)} or drop_null")
    if (how == "constant") != ("value" in options):
        raise UsageError("impute needs a value with how=constant, and takes one with it alone")


def _check_bucketize(options: Mapping[str, Any]) -> None:
    if ("buckets" in options) == ("boundaries" in options):
        raise UsageError("bucketize needs either buckets, a number, or boundaries, a list")
    boundaries: list[Any] = list(options.get("boundaries", [0]))
    if not boundaries or not all(
        isinstance(one, int | float) and math.isfinite(one) for one in boundaries
    ):
        raise UsageError(f"boundaries of bucketize are not numbers: {boundaries}")
    if boundaries != sorted(set(boundaries)):
        raise UsageError(f"boundaries of bucketize do not rise: {boundaries}")


def _check_clip(options: Mapping[str, Any]) -> None:
    low, high = options.get("low"), options.get("high")
    if low is None and high is None:
        raise UsageError("clip needs low or high")
    if low is not None and high is not None and not low <= high:
        raise UsageError(f"clip has low {low} above high {high}: exchange them")


def _check_embed(options: Mapping[str, Any]) -> None:
    if options.get("write", "vectors") not in ("vectors", "index"):
        raise UsageError(f"embed writes vectors or index, not {options['write']!r}")


_CHECKS = {
    "impute": _check_impute,
    "bucketize": _check_bucketize,
    "clip": _check_clip,
    "embed": _check_embed,
}


def by_column(steps: Iterable[Step]) -> dict[str, list[Step]]:
    """Return the steps of every column, in order; rows without a value are dropped elsewhere."""
    chains: dict[str, list[Step]] = {}
    for step in steps:
        for name in step.columns if step.op != "drop_null" else ():
            chains.setdefault(name, []).append(step)
    return chains


def dropped(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the columns whose rows without a value are dropped."""
    names = (name for step in steps if step.op == "drop_null" for name in step.columns)
    return tuple(dict.fromkeys(names))
