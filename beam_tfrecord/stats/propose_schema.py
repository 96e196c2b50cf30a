"""Proposes a schema whose limits hold for the values that a dataset has."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_text, value_type
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.loading.rows import Rows
from beam_tfrecord.stats.statistics import shown, statistics_of
from beam_tfrecord.stats.summary import ColumnSummary

# Texts of more different values, or of more characters, are seldom names of categories.
_MOST_VALUES = 100
_MOST_CHARACTERS = 50


def propose_schema(rows: Rows) -> Schema:
    """Return the schema of rows, with limits that all of them keep to; reads all of them."""
    found = statistics_of(rows).total

    def limited(feature: Feature) -> Feature:
        limits = _limits(found.columns[feature.name], found.rows)
        return dataclasses.replace(feature, observed=None, allowed={**feature.allowed, **limits})

    return Schema(tuple(map(limited, rows.schema.features)))


def _limits(column: ColumnSummary, rows: int) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    arrow, numbers, texts = value_type(column.arrow), column.numbers, column.texts
    if numbers is not None and numbers.count and not numbers.nan and not numbers.inf:
        ends = {key: shown(getattr(numbers, key), arrow=arrow) for key in ("min", "max")}
        limits = ends if _is_shown_exactly(arrow, *map(str, ends.values())) else {}
    if texts is not None and texts.length.count and is_text(arrow):
        is_short = (texts.length.max or 0) <= _MOST_CHARACTERS
        if is_short and texts.distinct.is_complete and len(texts.distinct.counts) <= _MOST_VALUES:
            limits["values"] = sorted(value.decode() for value, _ in texts.top())
    if column.nulls:
        # Rounded up, so that the rows keep to it.
        limits["max_null_share"] = math.ceil(1000 * column.nulls / rows) / 1000
    return limits


def _is_shown_exactly(arrow: pa.DataType, *ends: str) -> bool:
    """Return whether a schema reads the ends of the range of a column as statistics show them."""
    is_number = pa.types.is_integer(arrow) or pa.types.is_floating(arrow)
    is_day = pa.types.is_date(arrow) or pa.types.is_timestamp(arrow)
    return bool(is_number or (is_day and all(re.match(r"\d{4}-", end) for end in ends)))
