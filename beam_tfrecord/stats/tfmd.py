"""Converts statistics to a `DatasetFeatureStatisticsList` of TensorFlow Metadata, which TFDV reads.

The messages are those of ``tensorflow_metadata/proto/v0/statistics.proto``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_tfrecord.base.extras import require
from beam_tfrecord.features.arrow_types import is_binary, value_type
from beam_tfrecord.stats.numeric_summary import Numbers
from beam_tfrecord.stats.statistics import Statistics
from beam_tfrecord.stats.summary import ColumnSummary, Texts


def to_tfmd(statistics: Statistics) -> Any:
    """Return the protobuf message, with a ``DatasetFeatureStatistics`` for each split.

    If there are several splits, one of all examples is the first: TFDV infers a schema from it.

    Raises:
        UsageError: TensorFlow Metadata is not installed.
    """
    require("transform", "stats --tfmd")
    from tensorflow_metadata.proto.v0 import statistics_pb2

    out = statistics_pb2.DatasetFeatureStatisticsList()
    splits = {"All Examples": statistics.total} if len(statistics.splits) > 1 else {}
    for split, summary in {**splits, **statistics.splits}.items():
        dataset = out.datasets.add(name=split, num_examples=summary.rows)
        for name, column in summary.columns.items():
            feature = dataset.features.add()
            feature.path.step.append(name)
            total = statistics.total.columns[name]
            if column.texts is not None:
                _fill_texts(feature, column, column.texts, summary.rows)
            elif column.numbers is not None and total.numbers is not None:
                edges = total.numbers.edges()
                _fill_numbers(feature, column, column.numbers, edges, summary.rows)
    return out


def _fill_numbers(
    feature: Any, column: ColumnSummary, numbers: Numbers, edges: Sequence[float], rows: int
) -> None:
    feature.type = feature.FLOAT if numbers.kind == "float" else feature.INT
    stats = feature.num_stats
    _fill_common(stats.common_stats, column, numbers.count + numbers.nan + numbers.inf, rows)
    stats.num_zeros = numbers.zeros
    if not numbers.count:
        return
    stats.mean, stats.std_dev = numbers.mean, numbers.std
    stats.min, stats.median, stats.max = numbers.min, numbers.quartiles[1], numbers.max
    histogram = stats.histograms.add(num_nan=numbers.nan)
    for i, count in enumerate(numbers.histogram(edges) if edges else []):
        histogram.buckets.add(low_value=edges[i], high_value=edges[i + 1], sample_count=count)


def _fill_texts(feature: Any, column: ColumnSummary, texts: Texts, rows: int) -> None:
    values = int(texts.length.count)
    if is_binary(value_type(column.arrow)):
        feature.type = feature.BYTES
        _fill_common(feature.bytes_stats.common_stats, column, values, rows)
        feature.bytes_stats.unique = texts.distinct.number_among(values)
        if values:
            stats = feature.bytes_stats
            stats.avg_num_bytes = texts.length.mean
            stats.min_num_bytes, stats.max_num_bytes = texts.length.min, texts.length.max
        return
    feature.type = feature.STRING
    stats = feature.string_stats
    _fill_common(stats.common_stats, column, values, rows)
    stats.unique = texts.distinct.number_among(values)
    stats.avg_length = texts.length.mean or 0.0
    if not texts.distinct.is_complete:
        return
    for rank, (value, count) in enumerate(texts.top()):
        text = value.decode("utf-8", "replace")
        stats.rank_histogram.buckets.add(
            low_rank=rank, high_rank=rank, label=text, sample_count=count
        )
        if rank < 10:
            stats.top_values.add(value=text, frequency=count)


def _fill_common(stats: Any, column: ColumnSummary, values: int, rows: int) -> None:
    """Fill in counts: of rows with and without a value, and of the values in a row."""
    present = rows - column.nulls
    stats.num_missing, stats.num_non_missing = column.nulls, present
    stats.tot_num_values = values
    lengths = column.list_length
    stats.min_num_values = int(lengths.min or 0) if lengths is not None else 1
    stats.max_num_values = int(lengths.max or 0) if lengths is not None else 1
    stats.avg_num_values = values / present if present else 0.0
