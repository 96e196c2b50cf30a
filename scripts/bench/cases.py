"""The cases by name, and the bars that are set for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import baselines
import json_lines
import ours
import rooflines
import streams
from work import Bench, Measured

Metric = Literal[
    "rows_per_second",
    "rows_per_cpu_second",
    "bytes_per_row",
    "gigabytes_per_second",
    "seconds",
    "peak_rss",
    "peak_rss_gigabytes",
]


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to measure; `fast` puts its output on the memory filesystem."""

    prepare: Callable[[Bench], Measured]
    fast: bool = False

    @property
    def about(self) -> str:
        """What the case does, in one line."""
        return (self.prepare.__doc__ or "").splitlines()[0]


@dataclasses.dataclass(frozen=True)
class Bar:
    """A threshold for one case, or for the ratio of two.

    Attributes:
        name: What is promised.
        metric: The figure of a case that is meant, as a median.
        numerator: A case.
        denominator: Another; None where the figure itself is the measure.
        at_least: Whether the threshold is a floor; otherwise it is a ceiling.
        threshold: Where it lies.
    """

    name: str
    metric: Metric
    numerator: str
    denominator: str | None
    at_least: bool
    threshold: float


# Kinds of files besides Parquet that state the types of their columns.
_KINDS = ("arrow", "orc", "avro")

CASES: dict[str, Case] = {
    "source_order": Case(ours.source_order),
    "source_order_few": Case(ours.source_order_few),
    "source_order_fast": Case(ours.source_order, fast=True),
    "roofline_source_order": Case(rooflines.roofline_source_order),
    "roofline_source_order_direct": Case(rooflines.roofline_source_order_direct),
    "roofline_source_order_fast": Case(rooflines.roofline_source_order, fast=True),
    "shuffle": Case(ours.shuffle),
    "shuffle_few": Case(ours.shuffle_few),
    "shuffle_fast": Case(ours.shuffle, fast=True),
    "roofline_shuffle": Case(rooflines.roofline_shuffle),
    "roofline_shuffle_direct": Case(rooflines.roofline_shuffle_direct),
    "roofline_shuffle_fast": Case(rooflines.roofline_shuffle, fast=True),
    "shuffle_csv": Case(ours.shuffle_csv),
    "shuffle_json": Case(json_lines.shuffle_json),
    "shuffle_json_few": Case(json_lines.shuffle_json_few),
    "roofline_json": Case(json_lines.roofline_json),
    "stock_beam_json": Case(json_lines.stock_beam_json),
    "tfrecord_shuffle": Case(ours.tfrecord_shuffle),
    "tfrecord_shuffle_few": Case(ours.tfrecord_shuffle_few),
    "roofline_tfrecord_shuffle": Case(rooflines.roofline_tfrecord_shuffle),
    "stock_beam_tfrecord": Case(baselines.stock_beam_tfrecord),
    **{f"shuffle_{kind}": Case(ours.shuffle_files(kind)) for kind in _KINDS},
    **{
        f"shuffle_{kind}_few": Case(ours.shuffle_files(kind, ours.MEMORY_TABLES)) for kind in _KINDS
    },
    "map_rows": Case(ours.map_rows),
    "dataframe": Case(ours.dataframe),
    "dicts": Case(ours.dicts),
    "dicts_by_hand": Case(ours.dicts_by_hand),
    "numpy_source_order": Case(ours.numpy_source_order),
    "images": Case(ours.images),
    "sqlite": Case(ours.sqlite),
    "small_job": Case(ours.small_job),
    "verify": Case(ours.verify),
    "load": Case(ours.load),
    "stock_beam": Case(baselines.stock_beam),
    "stock_beam_processes": Case(baselines.stock_beam_processes),
    "stock_beam_map": Case(baselines.stock_beam_map),
    "gzip_write": Case(ours.gzip_write),
    "gzip_stream": Case(streams.gzip_stream),
    "zlib_level_6": Case(streams.zlib_level_6),
    "kernel_encode": Case(ours.kernel_encode),
    "tfx_bsl_encode": Case(baselines.tfx_bsl_encode),
    "tf_writer_loop": Case(baselines.tf_writer_loop),
    "help": Case(ours.command_help),
}

BARS: tuple[Bar, ...] = (
    Bar(
        "source order against stock Beam",
        "rows_per_second",
        "source_order",
        "stock_beam",
        True,
        200,
    ),
    Bar("shuffle against stock Beam", "rows_per_second", "shuffle", "stock_beam", True, 120),
    Bar(
        "CSV to shuffle against stock Beam",
        "rows_per_second",
        "shuffle_csv",
        "stock_beam",
        True,
        60,
    ),
    Bar(
        "JSON Lines against stock Beam",
        "rows_per_second",
        "shuffle_json",
        "stock_beam_json",
        True,
        30,
    ),
    Bar(
        "JSON Lines against its roofline",
        "rows_per_second",
        "shuffle_json",
        "roofline_json",
        True,
        0.6,
    ),
    Bar(
        "JSON Lines, memory for all rows against few",
        "peak_rss",
        "shuffle_json",
        "shuffle_json_few",
        False,
        1.2,
    ),
    Bar(
        "TFRecord to shuffled TFRecord against stock Beam",
        "rows_per_second",
        "tfrecord_shuffle",
        "stock_beam_tfrecord",
        True,
        100,
    ),
    Bar(
        "TFRecord to shuffled TFRecord against its roofline",
        "rows_per_second",
        "tfrecord_shuffle",
        "roofline_tfrecord_shuffle",
        True,
        0.5,
    ),
    Bar(
        "TFRecord to shuffled TFRecord, memory for all rows against few",
        "peak_rss",
        "tfrecord_shuffle",
        "tfrecord_shuffle_few",
        False,
        1.2,
    ),
    Bar(
        "map per row against stock Beam's", "rows_per_second", "map_rows", "stock_beam_map", True, 4
    ),
    Bar(
        "source order against its roofline",
        "rows_per_second",
        "source_order",
        "roofline_source_order",
        True,
        0.6,
    ),
    Bar(
        "shuffle against its roofline", "rows_per_second", "shuffle", "roofline_shuffle", True, 0.5
    ),
    Bar(
        "source order against its roofline past the page cache",
        "rows_per_second",
        "source_order",
        "roofline_source_order_direct",
        True,
        0.6,
    ),
    Bar(
        "shuffle against its roofline past the page cache",
        "rows_per_second",
        "shuffle",
        "roofline_shuffle_direct",
        True,
        0.5,
    ),
    Bar(
        "shuffle in memory against its roofline",
        "rows_per_second",
        "shuffle_fast",
        "roofline_shuffle_fast",
        True,
        0.5,
    ),
    Bar(
        "a DataFrame against the same rows of Parquet",
        "rows_per_second",
        "dataframe",
        "shuffle",
        True,
        1 / 1.2,
    ),
    Bar(
        "dicts against the same by hand",
        "rows_per_second",
        "dicts",
        "dicts_by_hand",
        True,
        0.8,
    ),
    Bar(
        "kernel against tfx_bsl's encoder",
        "rows_per_second",
        "kernel_encode",
        "tfx_bsl_encode",
        True,
        10,
    ),
    Bar("kernel, GB/s on one core", "gigabytes_per_second", "kernel_encode", None, True, 1.4),
    Bar(
        "source order, memory for all rows against few",
        "peak_rss",
        "source_order",
        "source_order_few",
        False,
        1.2,
    ),
    Bar(
        "shuffle, memory for all rows against few", "peak_rss", "shuffle", "shuffle_few", False, 1.2
    ),
    Bar(
        "shuffle of Arrow files against Parquet files",
        "rows_per_second",
        "shuffle_arrow",
        "shuffle",
        True,
        1,
    ),
    *(
        Bar(
            f"shuffle of {kind} files, memory for all rows against few",
            "peak_rss",
            f"shuffle_{kind}",
            f"shuffle_{kind}_few",
            False,
            1.2,
        )
        for kind in _KINDS
    ),
    Bar("shuffle, peak memory in GB", "peak_rss_gigabytes", "shuffle", None, False, 1.5),
    Bar(
        "gzip against zlib level 6, speed",
        "rows_per_second",
        "gzip_stream",
        "zlib_level_6",
        True,
        8,
    ),
    Bar(
        "gzip against zlib level 6, size",
        "bytes_per_row",
        "gzip_stream",
        "zlib_level_6",
        False,
        1.15,
    ),
    Bar("--help, seconds", "seconds", "help", None, False, 0.5),
)
