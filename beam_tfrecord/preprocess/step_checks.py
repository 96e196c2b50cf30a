"""Checks of steps against the columns they name, before any data is read."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.arrow_types import is_binary, is_temporal, is_text
from beam_tfrecord.preprocess.matrices import check_matrix
from beam_tfrecord.preprocess.steps import (
    CATEGORIES,
    EMPTY,
    FLOAT,
    INDEX,
    INTEGER,
    NUMBERS,
    OPS,
    OTHER,
    TEXT,
    VECTOR,
    Step,
)

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
