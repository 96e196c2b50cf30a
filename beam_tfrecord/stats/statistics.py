"""`Statistics`: the summaries of the splits of a dataset, as JSON and as a table for a terminal.

`propose_schema` makes a schema of them, whose limits hold for all values.
"""

from __future__ import annotations

import dataclasses
import functools
import html
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from beam_tfrecord.base.text import cell, counted, share_text, text_table
from beam_tfrecord.features.arrow_types import is_binary, is_text, time_unit, type_text, value_type
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.tally import duplicate_lines, duplicates_to_json
from beam_tfrecord.loading.rows import Rows
from beam_tfrecord.loading.value_text import SINGLES, json_value, short_floats
from beam_tfrecord.loading.values import rebatch
from beam_tfrecord.stats.charts import CHART_STYLE, histogram
from beam_tfrecord.stats.numeric_summary import Numbers
from beam_tfrecord.stats.summary import ColumnSummary, Summary

MOST_TOP = 1000
"""Columns of more different values have no list of the most frequent ones."""

_BARS = " ▁▂▃▄▅▆▇█"
_NAME_CHARACTERS = 24
_LINE_CHARACTERS = 80
_BATCH_ROWS, _BATCH_BYTES = 2**16, 2**26


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
    """The statistics of each split of a dataset; `Dataset.stats` makes them.

    Attributes:
        splits: The summary of each split.
    """

    splits: Mapping[str, Summary]

    @functools.cached_property
    def total(self) -> Summary:
        """The summary of all splits together."""
        return functools.reduce(Summary.merge, self.splits.values(), Summary(0, {}))

    def to_json(self, *, top: int = MOST_TOP) -> dict[str, Any]:
        """Return all numbers as a JSON object.

        It has no NaN and no infinity, and depends on the rows alone, not on their order or shards.
        Histograms of one feature have the same edges in all splits.

        Args:
            top: Largest number of the most frequent values of a feature.
        """
        edges = {name: _edges(column) for name, column in self.total.columns.items()}
        return {
            "splits": {
                name: {
                    "examples": summary.rows,
                    "copies": summary.copies.number,
                    "copies_are_exact": summary.copies.is_exact,
                    "features": {
                        feature: _column(column, edges[feature], top)
                        for feature, column in summary.columns.items()
                    },
                }
                for name, summary in self.splits.items()
            }
        }

    def total_json(self) -> dict[str, Any]:
        """Return the JSON of each feature in all splits together."""
        return dict(Statistics({"": self.total}).to_json()["splits"][""]["features"])

    def _repr_html_(self) -> str:
        count = max(self.total.rows, 1)
        rows = "".join(
            f"<tr><th>{html.escape(cell(name))}<td>{share_text(column.nulls / count)}"
            f"<td>{self._small_chart(name)}<td>{html.escape(_values(column, column).lstrip(_BARS))}"
            for name, column in self.total.columns.items()
        )
        head = "<tr><th>feature<th>null<th><th>values"
        return f"{CHART_STYLE}<table class=beam-tfrecord><thead>{head}<tbody>{rows}</table>"

    def _small_chart(self, name: str) -> str:
        """Return the histogram of a feature with the splits over each other; empty without one."""
        total = self.total.columns[name].numbers
        if total is None or not (edges := total.edges()):
            return ""
        parts = [split.columns[name].numbers for split in self.splits.values()]
        return histogram([part.histogram(edges) for part in parts if part is not None], name)

    def __str__(self) -> str:
        parts = [
            "\n".join([f"{name}: {counted(summary.rows, 'example')}", *_lines(summary, self.total)])
            for name, summary in self.splits.items()
        ]
        if not all(_is_exact(column) for column in self.total.columns.values()):
            parts.append("~ estimated: the number of different values to 5 %")
        return "\n\n".join(parts) or "no examples"


def statistics_of(rows: Rows, *, advance: Callable[[int], None] | None = None) -> Statistics:
    """Read all rows once, and return the statistics of each split.

    Args:
        rows: The rows of a dataset.
        advance: Called with the number of examples of each batch, by several threads.
    """
    count = os.cpu_count() or 1
    splits = {}
    with ThreadPoolExecutor(count) as pool:
        for name in rows.split_names:
            split = dataclasses.replace(rows, split_names=(name,))
            number = min(count, len(split.shards)) or 1
            parts = [split.of_shards(index, number) for index in range(number)]
            found = pool.map(functools.partial(summarize, advance=advance), parts)
            splits[name] = functools.reduce(Summary.merge, found)
    return Statistics(splits)


def summarize(rows: Rows, *, advance: Callable[[int], None] | None = None) -> Summary:
    """Return the summary of rows; memory does not grow with their number."""
    schema = rows.files.arrow_schema(rows.schema.names)
    # Arrow makes no empty table of tensors whose axes are in another order.
    empty = [pa.nulls(0, field.type) for field in schema]
    summary = Summary.of(pa.RecordBatch.from_arrays(empty, schema=schema))
    for batch in _even_batches(rows.batches()):
        summary = summary.add(batch)
        if advance is not None:
            advance(batch.num_rows)
    return summary


def _even_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that are large enough for many columns, and small for caches."""
    for first in batches:
        row_bytes = max(first.nbytes // max(first.num_rows, 1), 1)
        count = min(max(_BATCH_BYTES // row_bytes, 1), _BATCH_ROWS)
        yield from rebatch(itertools.chain([first], batches), count)


def _column(
    column: ColumnSummary, edges: Mapping[str, Sequence[float]], top: int
) -> dict[str, Any]:
    """Return the JSON of the statistics of one feature of one split."""
    out: dict[str, Any] = {"type": type_text(column.arrow), "nulls": column.nulls}
    arrow = value_type(column.arrow)
    if column.numbers is not None:
        show = functools.partial(shown, arrow=arrow)
        out |= _numbers(column.numbers, edges["value"], show)
        if out["distinct"] and not _is_exact(column):
            out |= {"distinct_is_exact": False, "quartiles_are_exact": False}
        if 0 < out["distinct"] <= MOST_TOP:
            out["top"] = [[show(value), n] for value, n in column.numbers.top()[:top]]
    if column.texts is not None:
        distinct, length = column.texts.distinct, column.texts.length
        out["distinct"] = distinct.number_among(length.count)
        out["distinct_is_exact"] = distinct.is_complete
        out["length"] = _numbers(length, edges["length"])
        if 0 < out["distinct"] <= MOST_TOP:
            is_bytes = is_binary(arrow)
            out["top"] = [[_text(value, is_bytes), n] for value, n in column.texts.top()[:top]]
    if column.list_length is not None:
        out["list_length"] = _numbers(column.list_length, edges["list_length"])
    if column.images is not None and column.images.width.count:
        out["image"] = {
            "format": dict(sorted(column.images.formats.items())),
            "width": _numbers(column.images.width, edges["width"]),
            "height": _numbers(column.images.height, edges["height"]),
        }
    return out


def _numbers(
    numbers: Numbers,
    edges: Sequence[float],
    show: Callable[[float | None], Any] = lambda value: value,
) -> dict[str, Any]:
    """Return the JSON of numbers; `show` converts what has their type."""
    out: dict[str, Any] = (
        {"nan": numbers.nan, "inf": numbers.inf} if numbers.kind == "float" else {}
    )
    out |= {
        "zeros": numbers.zeros,
        "distinct": numbers.distinct.number_among(numbers.count),
        "distinct_is_exact": numbers.distinct.is_complete,
    }
    if numbers.min is None or numbers.max is None:
        return out
    out |= {"min": show(numbers.min), "max": show(numbers.max), "mean": show(numbers.mean)}
    out |= {"std": numbers.std, "quartiles": [show(value) for value in numbers.quartiles]}
    out["quartiles_are_exact"] = numbers.is_exact
    if edges:
        counts = numbers.histogram(edges)
        out["histogram"] = {"edges": [show(edge) for edge in edges], "counts": counts}
    return out


def _edges(column: ColumnSummary) -> dict[str, Sequence[float]]:
    """Return the edges of all histograms of a feature, from its values in all splits."""
    found: dict[str, Numbers | None] = {
        "value": column.numbers,
        "length": column.texts.length if column.texts else None,
        "list_length": column.list_length,
        "width": column.images.width if column.images else None,
        "height": column.images.height if column.images else None,
    }
    return {name: one.edges() if one is not None else [] for name, one in found.items()}


def shown(value: float | None, *, arrow: pa.DataType) -> Any:
    """Return a number of a column as JSON has it: times as text in ISO 8601, booleans as such."""
    if value is None:
        return None
    if pa.types.is_boolean(arrow) and value in (0, 1):
        return bool(value)
    if pa.types.is_temporal(arrow):
        # Means and edges may lie beyond the type. NumPy has no time for the lowest number.
        whole = min(max(round(value), 1 - 2**63), 2**63 - 1)
        if pa.types.is_duration(arrow):
            return json_value(np.timedelta64(whole, arrow.unit))
        text = re.sub(r"\.0+$", "", str(np.datetime64(whole, time_unit(arrow))))
        day, _, clock = text.partition("T")
        if pa.types.is_time(arrow):
            return clock if day == "1970-01-01" else "24:00:00"
        return day if pa.types.is_date(arrow) else text + ("Z" if arrow.tz else "")
    return short_floats(value) if arrow in SINGLES else value


def _text(value: bytes, is_bytes: bool) -> Any:
    # A text that was cut may end inside a character.
    return json_value(value if is_bytes else value.decode("utf-8", "ignore"))


def _is_exact(column: ColumnSummary) -> bool:
    arrow, part = value_type(column.arrow), column.numbers or column.texts
    # Decimals are rounded to float64, which holds 15 digits.
    is_rounded = pa.types.is_decimal(arrow) and arrow.precision > 15
    return part is None or (part.distinct.is_complete and not is_rounded)


def _lines(summary: Summary, total: Summary) -> list[str]:
    header = ("feature", "null", "distinct", "values")
    starts = [
        (
            cell(name, _NAME_CHARACTERS),
            share_text(column.nulls / max(summary.rows, 1)),
            _distinct_text(column),
        )
        for name, column in summary.columns.items()
    ]
    width = sum(max(map(len, texts)) + 2 for texts in zip(header, *starts, strict=False))
    rows = [
        (*start, cell(_values(column, total.columns[name]), _LINE_CHARACTERS - width))
        for start, (name, column) in zip(starts, summary.columns.items(), strict=True)
    ]
    return [*copies_lines(summary), text_table(header, rows, right=(1, 2))]


def copies_lines(summary: Summary) -> list[str]:
    """Return a line on the rows that are copies of other rows; none if there are none."""
    return duplicate_lines(duplicates_to_json(summary.copies), by="in all columns")


def _distinct_text(column: ColumnSummary) -> str:
    part = column.numbers or column.texts
    about = "" if _is_exact(column) else "~"
    if part is None:
        return ""
    values = part.count if isinstance(part, Numbers) else part.length.count
    return f"{about}{part.distinct.number_among(values):,}"


def _values(column: ColumnSummary, total: ColumnSummary) -> str:
    """Return what the values of a column are, in a few words."""
    if column.images is not None and column.images.width.count:
        found = sorted(column.images.formats.items(), key=lambda pair: (-pair[1], pair[0]))
        width, height = column.images.width, column.images.height
        size = f"{width.min}x{height.min} to {width.max}x{height.max}"
        return ", ".join([*(f"{n:,} {name}" for name, n in found), size])
    if column.numbers is not None:
        return ", ".join(_number_texts(column.numbers, total, value_type(column.arrow)))
    if column.texts is not None:
        if len(column.texts.distinct.counts) <= MOST_TOP:
            is_bytes = is_binary(value_type(column.arrow))
            top = [(_text(value, is_bytes) or '""', n) for value, n in column.texts.top()[:3]]
            return ", ".join(f"{value} {n:,}" for value, n in top)
        return f"lengths {column.texts.length.min} to {column.texts.length.max}"
    return type_text(column.arrow)


def _number_texts(numbers: Numbers, total: ColumnSummary, arrow: pa.DataType) -> Iterator[str]:
    low, high, mean = (
        number_text(shown(value, arrow=arrow)) for value in (numbers.min, numbers.max, numbers.mean)
    )
    if numbers.count and numbers.low == numbers.high:
        yield f"always {low}"
    elif numbers.count:
        edges = total.numbers.edges(8) if total.numbers is not None else []
        yield f"{_sparkline(numbers.histogram(edges))} {low} to {high}"
        yield f"mean {mean}"
    if numbers.nan:
        yield f"{numbers.nan:,} NaN"
    if numbers.inf:
        yield f"{numbers.inf:,} infinite"


def _sparkline(counts: Sequence[int]) -> str:
    most = max(counts)
    return "".join(_BARS[math.ceil(count * (len(_BARS) - 1) / most)] for count in counts)


def number_text(value: Any) -> str:
    """Return a number with about four digits, as people read it; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 2**53):
        return str(int(value)) if abs(value) < 10**9 else f"{value:.3e}"
    form = ".4g" if abs(value) < 10_000 else ".0f" if abs(value) < 10**9 else ".3e"
    return f"{value:{form}}"


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
