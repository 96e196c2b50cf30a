"""`Selection`: which rows of a source a job takes, by a filter and by a sample.

`make_splits` parses what says which split a row goes to, by conditions too.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.base.arguments import check_seed
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.format.layout import Splits, as_columns, named_values
from beam_tfrecord.format.sort_keys import purpose_seed, sort_keys_by_origin
from beam_tfrecord.native.kernel_types import BoolArray
from beam_tfrecord.rows.batch import Batch, Origin
from beam_tfrecord.selection.evaluate import rows_that_match
from beam_tfrecord.selection.parse import Condition, naming, parse_filter

REST = "rest"
NOT_NUMBERED = (
    "--sample needs rows with numbers, and these have none: read a table with an integer key, or "
    "pass --no-shuffle, which numbers the rows in the order of their key"
)


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which rows of a source to take; a small value without objects of the parser."""

    condition: Condition | None = None
    share: Fraction = Fraction(1)
    seed: int = 0
    columns: tuple[str, ...] | None = None

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the columns that the condition needs."""
        return () if self.condition is None else self.condition.columns

    def identity(self) -> dict[str, Any]:
        """Return the JSON values that identify which rows are selected."""
        found: dict[str, Any] = {}
        if self.condition is not None:
            found["filter"] = str(self.condition)
        if self.share < 1:
            found |= {"sample": str(self.share), "sample_seed": self.seed}
        return found

    def check(self, schema: pa.Schema) -> None:
        """Check the condition against the types of the columns that the source reads."""
        if self.condition is not None:
            empty = [pa.nulls(0, field.type) for field in schema]
            rows_that_match(self.condition, pa.record_batch(empty, names=schema.names))

    def returned(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of the rows to return, given that of the rows that the source reads."""
        if self.columns is None:
            return schema
        fields = [schema.field(name) for name in self.columns]
        return pa.schema(fields, metadata=schema.metadata)

    def apply(self, batch: Batch) -> Batch:
        """Return the rows of a batch that are selected, with their origins and all rejects.

        The result counts all rows of the batch as read.
        """
        rows = np.flatnonzero(self._is_selected(batch))
        found = batch
        if len(rows) < batch.num_rows:
            found = batch.take(rows).replace(
                rejects=batch.rejects, refused=batch.refused, rows_read=batch.rows_counted
            )
        return found if self.columns is None else _with_columns(found, self.columns)

    def _is_selected(self, batch: Batch) -> BoolArray:
        is_selected = np.ones(batch.num_rows, np.bool_)
        if self.condition is not None:
            matches = pc.fill_null(rows_that_match(self.condition, exact_data(batch)), False)
            is_selected &= matches.to_numpy(zero_copy_only=False)
        if self.share < 1 and batch.num_rows:
            is_selected &= _in_sample(batch.exact_origin, batch.num_rows, self.share, self.seed)
        return is_selected


def make_selection(
    *, filter: str | None = None, sample: float | str | None = None, sample_seed: int | None = 0
) -> Selection | None:
    """Return what the keywords select; None if they select all rows."""
    condition = None if filter is None else parse_filter(filter)
    share = Fraction(1) if sample is None else _share(sample)
    seed = check_seed(sample_seed, "--sample-seed")
    if condition is None and share == 1:
        return None
    return Selection(condition, share, seed)


def make_splits(
    splits: Any,
    *,
    column: str | None = None,
    group: Sequence[str] | str | None = (),
    stratify: str | None = None,
) -> Splits:
    """Return the `Splits` for the arguments of a user."""
    if column is not None:
        if splits or group or stratify:
            raise UsageError(
                "--split-column already says where rows go: leave out --split, --group and "
                "--stratify"
            )
        return Splits(fractions=(), column=column)
    if not splits:
        return Splits(group=as_columns(group), stratify=stratify)
    if not hasattr(splits, "items") and not isinstance(splits, str):
        named = dict(zip(("train", "test", "validation"), splits, strict=False))
        raise UsageError(f"splits {splits!r} have no names: pass a dict such as {named}")
    try:
        by = _by_kind(_parts(splits) if isinstance(splits, str) else splits)
    except ValueError:
        raise UsageError(
            f"cannot read splits {splits!r}: name each split with its share of 1, its number of "
            "rows or a condition, as in train=0.9,test=0.1"
        ) from None
    return Splits(**by, group=as_columns(group), stratify=stratify)


def _parts(text: str) -> dict[str, str]:
    """Return the values by name: cut a text at the commas outside of quotes and parentheses."""
    parts, depth = [""], 0
    for token in re.findall(r"""'[^']*'|"[^"]*"|.""", text, re.DOTALL):
        depth += (token == "(") - (token == ")")
        if token == "," and not depth:
            parts.append("")
        else:
            parts[-1] += token
    return named_values(parts, str)


def _value(value: Any) -> int | float | str:
    """Return a number of rows, a share, or the text of a condition."""
    if not isinstance(value, str):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if not value[:1].isdigit() and value[:1] not in ("", "+", "-", "."):
        return value
    return int(value) if value.isdecimal() else float(value)


def _by_kind(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `Splits` for values by name, which are all of one kind."""
    values: dict[str, Any] = {name: _value(value) for name, value in parts.items()}
    if list(values) == ["fold"] and isinstance(folds := values["fold"], int) and folds > 1:
        return {"fractions": tuple((f"fold{number}", 1 / folds) for number in range(folds))}
    rest = [name for name, value in values.items() if value == REST]
    if rest not in ([], list(values)[-1:]):
        raise UsageError("only the last split takes the rest: put rest at the end of --split")
    given = {name: value for name, value in values.items() if value != REST}
    kinds = {type(value) for value in given.values()}
    if str in kinds and len(kinds) > 1:
        raise UsageError("--split has conditions and numbers: give one kind, and rest at the end")
    others = [(name, None) for name in rest]
    if kinds == {str}:
        with naming("--split"):
            conditions = [(name, parse_filter(str(text))) for name, text in given.items()]
        return {"fractions": (), "conditions": (*conditions, *others)}
    if kinds == {int} and rest:
        return {"fractions": (), "rows": (*given.items(), *others)}
    shares = {name: float(value) for name, value in given.items()}
    if kinds == {int} and sum(shares.values()) > 1:
        raise UsageError(
            "numbers of rows in --split need a last split for the rest, as in train=8000,test=rest"
        )
    left = 1 - math.fsum(shares.values())
    return {"fractions": (*shares.items(), *((name, left) for name in rest))}


def _share(sample: float | str) -> Fraction:
    text = str(sample).strip()
    try:
        number = Decimal(text.removesuffix("%"))
    except InvalidOperation as error:
        raise UsageError(f"--sample {text!r} is not a share: pass 1% or 0.01") from error
    if not number.is_finite() or abs(number.adjusted()) > 20:
        raise UsageError(f"--sample {text!r} is not a share: pass 1% or 0.01")
    share = Fraction(number) / (100 if text.endswith("%") else 1)
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text!r} is not above 0 and at most 1, or 100%")
    return share


def _in_sample(origin: Origin | None, num_rows: int, share: Fraction, seed: int) -> BoolArray:
    """Return which rows are in the sample: those whose hashes are in the lowest part of all.

    So a smaller sample is a part of each larger one with the same seed.
    """
    if origin is None:
        raise DataError(NOT_NUMBERED)
    rows = np.arange(num_rows, dtype=np.int64)
    hashes = sort_keys_by_origin(origin, rows, num_rows, purpose_seed(seed, "sample"))
    is_in: BoolArray = hashes < np.uint64(int(share * 2**64))
    return is_in


def exact_data(batch: Batch) -> pa.RecordBatch:
    """Return the rows with float columns as their source has them, not rounded to float32."""
    data, numbers = batch.data, batch.numbers
    if numbers is None:
        return data
    for name, exact in zip(numbers.schema.names, numbers.columns, strict=True):
        if pa.types.is_float64(exact.type):
            data = data.set_column(data.schema.get_field_index(name), name, exact)
    return data


def _with_columns(batch: Batch, columns: Iterable[str]) -> Batch:
    names = list(columns)
    numbers = batch.numbers
    if numbers is not None:
        exact = [name for name in names if name in numbers.schema.names]
        numbers = numbers.select(exact) if exact else None
    return batch.replace(data=batch.data.select(names), numbers=numbers)
