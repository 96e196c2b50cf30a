"""Parses preprocessing steps, and checks them against a schema before any data is read.

A step applies one operation to some columns, such as ``zscore`` or ``vocabulary``. It is
``{"op": …, "columns": […], …options}`` in Python and in JSON, and ``op=A,B:option=value`` on the
command line. Steps of one column apply in the order of the list. The module `operations` documents
how each operation treats missing values and NaN.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.base.text import counted, not_found
from beam_tfrecord.errors import UsageError, did_you_mean
from beam_tfrecord.features.arrow_types import is_binary, is_temporal, is_text

# Kinds of columns: what a column holds before, between or after its steps.
INTEGER, FLOAT, TEXT, INDEX = "integer", "float", "text", "index"
VECTOR, EMPTY, OTHER = "vector", "empty", "other"
NUMBERS = (INTEGER, FLOAT, INDEX, EMPTY)
CATEGORIES = (INTEGER, TEXT, INDEX, EMPTY)

_KIND_NAMES = {
    INTEGER: "integer",
    FLOAT: "float",
    TEXT: "text",
    INDEX: "an index",
    VECTOR: "a list of numbers",
    OTHER: "of a type without steps",
}
_IMPUTE_METHODS = ("mean", "median", "most_frequent", "constant")
# A matrix becomes a constant of the fitted function, whose file cannot exceed 2 GiB.
_MATRIX_BYTES = 2**30


@dataclasses.dataclass(frozen=True)
class Op:
    """The rules of an operation: its options, and the columns that it works on."""

    options: Mapping[str, tuple[type, ...]]
    takes: tuple[str, ...]
    result: str | None = None
    required: tuple[str, ...] = ()
    lists: bool = True


_NUMBER = (int, float)
# Types of the values of an option in messages; others are text.
_KINDS: dict[tuple[type, ...], str] = {
    (int,): "a whole number",
    _NUMBER: "a number",
    (int, float, str): "a number or text",
    (list, tuple): "a list",
}
_COUNTED = {"top_k": (int,), "min_count": (int,)}
OPS: dict[str, Op] = {
    "impute": Op({"how": (str,), "value": (int, float, str)}, (*NUMBERS, TEXT), lists=False),
    "drop_null": Op({}, (*NUMBERS, TEXT, OTHER)),
    "zscore": Op({}, NUMBERS, FLOAT),
    "minmax": Op({}, NUMBERS, FLOAT),
    "bucketize": Op({"buckets": (int,), "boundaries": (list, tuple)}, NUMBERS, INDEX),
    "one_hot": Op(_COUNTED, CATEGORIES, VECTOR, lists=False),
    "vocabulary": Op({**_COUNTED, "oov_buckets": (int,)}, CATEGORIES, INDEX),
    "embed": Op(
        {"matrix": (str,), "width": (int,), "write": (str,)},
        (INTEGER, INDEX, EMPTY),
        required=("matrix",),
        lists=False,
    ),
    "hash": Op({"buckets": (int,)}, CATEGORIES, INDEX, required=("buckets",)),
    "clip": Op({"low": _NUMBER, "high": _NUMBER}, NUMBERS),
    "log1p": Op({}, NUMBERS, FLOAT),
}
_MIN = {"buckets": 2, "top_k": 1, "min_count": 1, "oov_buckets": 0, "width": 1}


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation on some columns."""

    op: str
    columns: tuple[str, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.op not in OPS:
            hint = did_you_mean(self.op, OPS, f"the steps are {', '.join(OPS)}")
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
    """Return the steps in a list of JSON objects or of steps."""
    if not isinstance(value, list | tuple):
        raise UsageError(f'{where} is not a list of steps: write [{{"op": …, "columns": […]}}]')
    return tuple(one if isinstance(one, Step) else _step(one, where) for one in value)


def _step(value: Any, where: str) -> Step:
    if not isinstance(value, Mapping) or "op" not in value or "columns" not in value:
        raise UsageError(f"{where}: a step needs op and columns: {value!r:.80}")
    options = dict(value)
    op, columns = str(options.pop("op")), options.pop("columns")
    return Step(op, (columns,) if isinstance(columns, str) else tuple(columns), options)


def load_steps(path: str) -> tuple[Step, ...]:
    """Read the steps in a JSON file."""
    try:
        with open(path, encoding="utf-8") as file:
            return steps_from_json(json.load(file), where=path)
    except OSError as error:
        raise UsageError(f"cannot read steps {path!r}: {str(error.strerror).lower()}") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: line {error.lineno}: {error.msg}") from error


def parse_step(text: str) -> Step:
    """Parse a step of the command line, such as ``impute=fare,tip:how=median``."""
    head, *options = text.split(":")
    op, equals, columns = head.partition("=")
    pairs = [option.partition("=") for option in options]
    if not equals or not all(separator for _, separator, _ in pairs):
        raise UsageError(f"cannot read step {text!r}: write op=A,B or op=A,B:option=value")
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    if option := next((name for name in names if "=" in name), None):
        raise UsageError(f"cannot read step {text!r}: write the option as :{option}")
    return Step(op.strip(), names, {name.strip(): _parsed(value) for name, _, value in pairs})


def _parsed(text: str) -> Any:
    """Return the value of an option: a number or list if the text is one in JSON, else the text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, int | float | list) else text


def _check_options(step: Step) -> None:
    op = OPS[step.op]
    value: Any
    for name, value in step.options.items():
        if name not in op.options:
            known = f"its options are {', '.join(op.options)}" if op.options else "it has none"
            raise UsageError(f"step {step.op} has no option {name!r}: {known}")
        if not isinstance(value, op.options[name]) or isinstance(value, bool):
            kinds = _KINDS.get(op.options[name], "text")
            raise UsageError(f"option {name} of step {step.op} is {value!r}: pass {kinds}")
        if name in _MIN and step.options[name] < _MIN[name]:
            raise UsageError(f"option {name} of step {step.op} is {value}: at least {_MIN[name]}")
    for name in op.required:
        if name not in step.options:
            raise UsageError(f"step {step.op} of {', '.join(step.columns)} needs {name}")
    if step.op in _CHECKS:
        _CHECKS[step.op](step.options)


def _check_impute(options: Mapping[str, Any]) -> None:
    how = options.get("how", "constant" if "value" in options else "mean")
    if how not in _IMPUTE_METHODS:
        methods = ", ".join(_IMPUTE_METHODS)
        raise UsageError(f"impute has no method {how!r}: choose {methods} or drop_null")
    if (how == "constant") != ("value" in options):
        raise UsageError("impute needs a value with how=constant, and takes none otherwise")


def _check_bucketize(options: Mapping[str, Any]) -> None:
    if ("buckets" in options) == ("boundaries" in options):
        raise UsageError("bucketize needs either buckets, a number, or boundaries, a list")
    boundaries: list[Any] = list(options.get("boundaries", [0]))
    if not boundaries or not all(
        isinstance(one, int | float) and math.isfinite(one) for one in boundaries
    ):
        raise UsageError(f"boundaries of bucketize are not numbers: {boundaries}")
    if boundaries != sorted(set(boundaries)):
        raise UsageError(f"boundaries of bucketize are not in ascending order: {boundaries}")


def _check_clip(options: Mapping[str, Any]) -> None:
    low, high = options.get("low"), options.get("high")
    if low is None and high is None:
        raise UsageError("clip needs low or high")
    if low is not None and high is not None and not low <= high:
        raise UsageError(f"clip has low {low} above high {high}: swap them")


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
    """Return the steps of each column in order, except ``drop_null``, which drops rows instead."""
    chains: dict[str, list[Step]] = {}
    for step in steps:
        for name in step.columns if step.op != "drop_null" else ():
            chains.setdefault(name, []).append(step)
    return chains


def dropped(steps: Iterable[Step]) -> tuple[str, ...]:
    """Return the columns of ``drop_null`` steps: rows without a value in them are dropped."""
    names = (name for step in steps if step.op == "drop_null" for name in step.columns)
    return tuple(dict.fromkeys(names))


def kind_of(arrow: pa.DataType) -> tuple[str, bool]:
    """Return the kind of the values of an Arrow type, and True if the type is a list of them."""
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


@dataclasses.dataclass(frozen=True)
class _ColumnState:
    """The state of a column between two of its steps."""

    kind: str
    is_list: bool
    index_count: int | None = None
    is_changed: bool = False


def check_steps(steps: Sequence[Step], schema: pa.Schema) -> None:
    """Check that every step works on its columns, as the steps before it leave them."""
    columns: dict[str, _ColumnState] = {}
    for step in steps:
        for name in step.columns:
            if name not in schema.names:
                raise UsageError(
                    not_found(name, schema.names, of=f"step {step.op}", where="the rows")
                )
            column = columns.get(name) or _ColumnState(*kind_of(schema.field(name).type))
            columns[name] = _after(step, name, column)


def _after(step: Step, name: str, column: _ColumnState) -> _ColumnState:
    """Return the state of a column after a step."""
    if step.op == "drop_null":
        if column.is_changed:
            raise UsageError(f"drop_null of {name!r} comes too late: make it its first step")
        return column
    _check_kind(step, name, column)
    kind, index_count, options = OPS[step.op].result, column.index_count, step.options
    if step.op == "impute":
        kind = _imputed_kind(options, name, column.kind)
    elif step.op == "hash":
        index_count = options["buckets"]
    elif step.op == "vocabulary":
        top_k = options.get("top_k")
        index_count = None if top_k is None else top_k + options.get("oov_buckets", 1)
    elif step.op == "embed":
        _check_matrix(options, name, index_count)
        kind = VECTOR if options.get("write", "vectors") == "vectors" else INDEX
    return _ColumnState(kind or column.kind, column.is_list, index_count, is_changed=True)


def _check_kind(step: Step, name: str, column: _ColumnState) -> None:
    op = OPS[step.op]
    if column.kind in op.takes and (op.lists or not column.is_list):
        return
    found = "a list" if column.kind in op.takes else _KIND_NAMES[column.kind]
    if step.op == "embed":
        wanted = "an index: put vocabulary before it"
    elif op.takes == CATEGORIES:
        wanted = "text or whole numbers"
    else:
        wanted = "numbers" if op.takes == NUMBERS else "one value per row"
    raise UsageError(
        f"step {step.op} cannot work on column {name!r}, which is {found} there: it needs {wanted}"
    )


def _imputed_kind(options: Mapping[str, Any], name: str, kind: str) -> str:
    how, value = options.get("how", "mean"), options.get("value")
    if "value" in options:
        if isinstance(value, str) != (kind == TEXT) and kind != EMPTY:
            raise UsageError(
                f"column {name!r} is {_KIND_NAMES[kind]} but impute has the value {value!r}: "
                "give one of its kind"
            )
        if kind == INTEGER and isinstance(value, float) and not value.is_integer():
            raise UsageError(
                f"column {name!r} is integer but impute has the value {value!r}: "
                "give a whole number"
            )
    elif kind == TEXT and how != "most_frequent":
        raise UsageError(
            f"column {name!r} is text, which has no {how}: impute it with most_frequent or constant"
        )
    if kind != EMPTY:
        return kind
    return TEXT if isinstance(value, str) else FLOAT


def _check_matrix(options: Mapping[str, Any], column: str, index_count: int | None) -> None:
    """Check the matrix of ``embed`` by the header of its file."""
    path, width = options["matrix"], options.get("width")
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
    if index_count is not None and matrix.shape[0] < index_count:
        raise UsageError(
            f"matrix {path!r} has {counted(matrix.shape[0], 'row')} but column {column!r} can have "
            f"{index_count} indices: give a row for each, those out of the vocabulary included"
        )
    if 4 * matrix.size > _MATRIX_BYTES:
        raise UsageError(
            f"matrix {path!r} takes {4 * matrix.size:,} bytes: at most {_MATRIX_BYTES:,} fit into "
            "the saved function: write the index and look it up in the model"
        )


def open_matrix(path: str) -> npt.NDArray[np.generic]:
    """Map the matrix of a ``.npy`` file into memory, without reading it."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot read matrix {path!r}: {reason}") from error
    except ValueError as error:
        raise UsageError(f"matrix {path!r} is not a .npy file of numbers") from error


def matrix_sha256(path: str) -> str:
    """Return the SHA-256 of a file, 64 hex digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
