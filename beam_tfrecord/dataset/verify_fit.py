"""Whether records are examples of a schema, and which record is the first that is not.

The kernel vouches for nearly all records without decoding them. What it does not vouch for, and
columns whose features have to agree with each other (nested lists, maps), is decoded.
"""

from __future__ import annotations

import contextlib
import re

import pyarrow as pa

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.features.arrow_types import is_binary, is_temporal, is_tensor, is_text
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.type_contract import (
    BYTES,
    INT64,
    SHAPE,
    VALUES,
    TFColumn,
    schema_tf_columns,
    value_count,
)
from beam_tfrecord.native.values import KIND_NAMES, FitRule
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.tfrecord import RecordBlock

_BLOCK_RECORD = re.compile(r"^record \d+: ")
_MOST_VALUES = 2**63 - 1


class SchemaFit:
    """Tells whether records are examples of a schema.

    Args:
        schema: The schema.
        examples: How many there are in all files.
    """

    def __init__(self, schema: Schema, examples: int) -> None:
        columns = schema_tf_columns(schema)
        self._leaves = {leaf.name: leaf for column in columns for leaf in column}
        self._rules = sorted(map(fit_rule, self._leaves.values()), key=lambda rule: rule.name)
        self._decoder = Decoder(schema)
        linked = [
            feature.name
            for feature, column in zip(schema.features, columns, strict=True)
            if not _rules_suffice(column)
        ]
        self._linked = Decoder(schema, linked) if linked else None
        # What is never missing is looked for in every record; what always is, in none.
        self._columns = {
            leaf.name: feature.name
            for feature, column in zip(schema.features, columns, strict=True)
            for leaf in column
        }
        self._unseen = {
            feature.name
            for feature in schema.features
            if feature.nullable and feature.observed and feature.observed.missing < examples
        }

    def first_misfit(self, block: RecordBlock) -> tuple[int, str] | None:
        """Return the number within the file, and the fault, of a block's first misfit."""
        if self._unseen:
            self._look_for_unseen(block)
        sure = native.fitting_records(block.data, block.starts, self._rules)
        if self._linked is not None and not self._decodes(self._linked, block.slice(0, sure)):
            sure = 0
        rest = block.slice(sure, len(block.starts))
        if not len(rest.starts) or self._problem(rest) is None:
            return None
        # The shortest beginning that does not fit ends with the record at fault.
        low, high = 0, len(rest.starts)
        while high - low > 1:
            middle = (low + high) // 2
            if self._problem(rest.slice(low, middle)) is None:
                low = middle
            else:
                high = middle
        one = rest.slice(low, high)
        return one.first_record, self._problem(one) or "does not fit the schema"

    def unseen(self) -> tuple[str, ...]:
        """Return the columns that may be missing and were missing in all records so far."""
        return tuple(sorted(self._unseen))

    def _look_for_unseen(self, block: RecordBlock) -> None:
        with contextlib.suppress(ValueError):
            for name, feature in native.discover(block.data, block.starts).items():
                if feature.present_count:
                    self._unseen.discard(self._columns.get(name.decode("utf-8", "replace"), ""))

    @staticmethod
    def _decodes(decoder: Decoder, block: RecordBlock) -> bool:
        try:
            decoder.decode(block.data, block.starts)
        except (ValueError, DataError):
            return False
        return True

    def _problem(self, block: RecordBlock) -> str | None:
        try:
            found = native.discover(block.data, block.starts)
            for name, feature in found.items():
                text = name.decode("utf-8", "backslashreplace")
                leaf = self._leaves.get(text)
                if leaf is None:
                    return f"feature {text!r} is not in the schema"
                if feature.kind not in (0, leaf.kind):
                    return (
                        f"feature {text!r} is {KIND_NAMES[feature.kind]}, the schema says "
                        f"{KIND_NAMES[leaf.kind]}"
                    )
            for leaf in self._leaves.values():
                seen = found.get(leaf.name.encode())
                if not leaf.nullable and (seen.present_count if seen else 0) < len(block.starts):
                    return f"feature {leaf.name!r} is missing, the schema says it never is"
            self._decoder.decode(block.data, block.starts)
        except (ValueError, DataError) as error:
            # The kernel counts records within the block, which nobody sees.
            return _BLOCK_RECORD.sub("", str(error))
        return None


def fit_rule(leaf: TFColumn) -> FitRule:
    """Return what the kernel is told of a feature: never more than decoding would accept."""
    low, high = _range(leaf)
    exact = None if leaf.shape is None else value_count(leaf.shape)
    return FitRule(
        name=leaf.name.encode(),
        kind=leaf.kind,
        required=not leaf.nullable,
        min_values=0 if exact is None else exact,
        max_values=_MOST_VALUES if exact is None else exact,
        low=low,
        high=high,
        is_text=leaf.kind == BYTES and (is_text(leaf.type) or leaf.store == "text"),
        value_bytes=_value_bytes(leaf),
    )


def _range(leaf: TFColumn) -> tuple[int, int]:
    arrow = leaf.type
    if leaf.kind != INT64 or leaf.role != VALUES:
        return -(2**63), 2**63 - 1
    if pa.types.is_boolean(arrow):
        return 0, 1
    if pa.types.is_unsigned_integer(arrow):
        return 0, min(2**arrow.bit_width, 2**63) - 1
    if pa.types.is_integer(arrow) or is_temporal(arrow):
        return -(2 ** (arrow.bit_width - 1)), 2 ** (arrow.bit_width - 1) - 1
    return -(2**63), 2**63 - 1


def _value_bytes(leaf: TFColumn) -> int:
    arrow = leaf.type
    if leaf.kind != BYTES:
        return -1
    if is_tensor(arrow):
        item_bytes = max(1, int(arrow.value_type.bit_width) // 8)
        return value_count(tuple(arrow.shape)) * item_bytes
    if pa.types.is_fixed_size_binary(arrow):
        return int(arrow.byte_width)
    return 8 if leaf.store == "bytes" else -1


def _rules_suffice(column: tuple[TFColumn, ...]) -> bool:
    """Tell whether no feature of a column has to agree with another one, or be parsed."""
    values = [leaf for leaf in column if leaf.role == VALUES]
    # The shape of a tensor of a fixed one says nothing new; any other has to agree with its values.
    others = {leaf.role for leaf in column} - {VALUES}
    if others and not (others == {SHAPE} and is_tensor(values[0].type)):
        return False
    if not all(map(_is_plain, column)):
        return False
    return len(values) == 1 or all(leaf.depth == 0 for leaf in values)


def _is_plain(leaf: TFColumn) -> bool:
    arrow = leaf.type
    if leaf.store == "text":
        return False
    if is_tensor(arrow):
        return not pa.types.is_boolean(arrow.value_type)
    types = pa.types
    return bool(
        types.is_integer(arrow)
        or types.is_floating(arrow)
        or types.is_boolean(arrow)
        or is_temporal(arrow)
        or is_text(arrow)
        or is_binary(arrow)
    )
