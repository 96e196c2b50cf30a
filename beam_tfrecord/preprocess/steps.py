"""Declarative steps as values: what is done to which columns, checked before any data is read.

A step is ``{"op": …, "columns": […], …options}`` in Python and in JSON, and ``op=A,B:option=value``
on the command line. Steps of one column follow each other in the order they are given. What each
one means for missing values, NaN and the like is told in `functions.py`.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.type_kinds import is_binary, is_temporal, is_text

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


# The matrix becomes a constant of the saved function, whose file cannot exceed 2 GiB.
MAX_BYTES = 2**30
_READ_BYTES = 2**20


def check_matrix(path: str, *, column: str, width: int | None, rows: int | None) -> None:
    """Check a matrix by its header.

    Args:
        path: The file.
        column: Column whose values are its row numbers, for messages.
        width: Numbers of a row that are wanted; None: any.
        rows: Rows that the column's values can ask for, where that is known.

    Raises:
        UsageError: It is no matrix of numbers, or of another size.
    """
    matrix = open_matrix(path)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise UsageError(
            f"matrix {path!r} for column {column!r} has shape {matrix.shape} of {matrix.dtype}: "
            "give two axes of numbers"
        )
    if width is not None and matrix.shape[1] != width:
        raise UsageError(
            f"matrix {path!r} for column {column!r} is {matrix.shape[1]} wide, not {width}: "
            "give another matrix, or correct width"
        )
    if rows is not None and matrix.shape[0] < rows:
        raise UsageError(
            f"matrix {path!r} has {matrix.shape[0]} rows but column {column!r} can have {rows} "
            "indices: give a row for each, those out of the vocabulary included"
        )
    if 4 * matrix.size > MAX_BYTES:
        raise UsageError(
            f"matrix {path!r} takes {4 * matrix.size:,} bytes: at most {MAX_BYTES:,} fit into the "
            "saved function: write the index and look it up in the model"
        )


def open_matrix(path: str) -> npt.NDArray[np.generic]:
    """Open a matrix without reading it.

    Raises:
        UsageError: It is not there, or not a ``.npy`` file.
    """
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot read matrix {path!r}: {reason}") from error
    except ValueError as error:
        raise UsageError(f"matrix {path!r} is not a .npy file of numbers") from error


def matrix_sha256(path: str) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


_NAMES = {
    INTEGER: "integer",
    FLOAT: "float",
    TEXT: "text",
    INDEX: "an index",
    VECTOR: "a list of numbers",
    OTHER: "of a type without steps",
}


def kind_of(arrow: pa.DataType) -> tuple[str, bool]:
    """Return what a column of a type holds, and whether in lists."""
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        kind, is_nested = kind_of(arrow.value_type)
        return (OTHER if is_nested else kind), True
    if pa.types.is_dictionary(arrow):
        return kind_of(arrow.value_type)
    if pa.types.is_null(arrow):
        return EMPTY, False
    if pa.types.is_integer(arrow) or pa.types.is_boolean(arrow) or is_temporal(arrow):
        return INTEGER, False
    if pa.types.is_floating(arrow) or pa.types.is_decimal(arrow):
        return FLOAT, False
    return (TEXT, False) if is_text(arrow) or is_binary(arrow) else (OTHER, False)


def check_steps(steps: Sequence[Step], schema: pa.Schema) -> None:
    """Check that every step can be done to its columns, in order.

    Raises:
        UsageError: A column does not exist, holds what the step is not for, or a matrix does not
            fit.
    """
    checks: dict[str, _Column] = {}
    for step in steps:
        for name in step.columns:
            if name not in schema.names:
                near = difflib.get_close_matches(name, schema.names, n=1)
                columns = f"the columns are {', '.join(schema.names)}"
                hint = f"did you mean {near[0]!r}?" if near else columns
                raise UsageError(
                    f"step {step.op} names column {name!r}, which is not there: {hint}"
                )
            column = checks.setdefault(name, _Column(name, *kind_of(schema.field(name).type)))
            column.take(step)


class _Column:
    """What is known of a column while its steps are checked."""

    def __init__(self, name: str, kind: str, is_list: bool) -> None:
        self._name = name
        self._kind = kind
        self._is_list = is_list
        self._is_first = True
        self._rows: int | None = None

    def take(self, step: Step) -> None:
        op = OPS[step.op]
        if step.op == "drop_null":
            if not self._is_first:
                raise UsageError(
                    f"drop_null of {self._name!r} comes too late: make it its first step"
                )
            return
        self._is_first = False
        if self._kind not in op.takes or (self._is_list and not op.lists):
            shape = "a list" if self._is_list and self._kind in op.takes else _NAMES[self._kind]
            wanted = "numbers" if op.takes == NUMBERS else "one value a row"
            wanted = "text or whole numbers" if op.takes == CATEGORIES else wanted
            wanted = "an index: put vocabulary before it" if step.op == "embed" else wanted
            raise UsageError(
                f"step {step.op} cannot work on column {self._name!r}, which is {shape} there: "
                f"it needs {wanted}"
            )
        getattr(self, f"_{step.op}", self._same)(step.options)

    def _same(self, options: Mapping[str, Any]) -> None:
        """Keep what is known."""

    def _impute(self, options: Mapping[str, Any]) -> None:
        how, value = options.get("how", "mean"), options.get("value")
        if "value" in options:
            if isinstance(value, str) != (self._kind == TEXT) and self._kind != EMPTY:
                raise UsageError(
                    f"column {self._name!r} is {_NAMES[self._kind]} but impute has the value "
                    f"{value!r}: give one of its kind"
                )
            if self._kind == INTEGER and isinstance(value, float) and not value.is_integer():
                raise UsageError(
                    f"column {self._name!r} is integer but impute has the value {value!r}: "
                    "give a whole number"
                )
        elif self._kind == TEXT and how != "most_frequent":
            raise UsageError(
                f"column {self._name!r} is text, which has no {how}: "
                "impute it with most_frequent or constant"
            )
        if self._kind == EMPTY:
            self._kind = TEXT if isinstance(value, str) else FLOAT

    def _zscore(self, options: Mapping[str, Any]) -> None:
        self._kind = FLOAT

    _minmax = _log1p = _zscore

    def _bucketize(self, options: Mapping[str, Any]) -> None:
        self._kind = INDEX

    def _hash(self, options: Mapping[str, Any]) -> None:
        self._kind, self._rows = INDEX, options["buckets"]

    def _vocabulary(self, options: Mapping[str, Any]) -> None:
        self._kind = INDEX
        top_k = options.get("top_k")
        self._rows = None if top_k is None else top_k + options.get("oov_buckets", 1)

    def _one_hot(self, options: Mapping[str, Any]) -> None:
        self._kind = VECTOR

    def _embed(self, options: Mapping[str, Any]) -> None:
        check_matrix(
            options["matrix"], column=self._name, width=options.get("width"), rows=self._rows
        )
        self._kind = VECTOR if options.get("write", "vectors") == "vectors" else INDEX
