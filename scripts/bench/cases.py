"""The cases of the benchmark by name, and the bars that they are held to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

import baselines
import json_lines
import ours
import preprocessing
import rooflines
from work import Bench, Measured

Metric = Literal[
    "rows_per_second",
    "rows_per_cpu_second",
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
    "tfrecord_shuffle": Case(ours.tfrecord_shuffle),
    "tfrecord_shuffle_few": Case(ours.tfrecord_shuffle_few),
    "roofline_tfrecord_shuffle": Case(rooflines.roofline_tfrecord_shuffle),
    **{f"shuffle_{kind}": Case(ours.shuffle_files(kind)) for kind in _KINDS},
    **{
        f"shuffle_{kind}_few": Case(ours.shuffle_files(kind, ours.MEMORY_TABLES)) for kind in _KINDS
    },
    "map_rows": Case(ours.map_rows),
    "dataframe": Case(ours.dataframe),
    "dicts": Case(ours.dicts),
    "dicts_by_hand": Case(ours.dicts_by_hand),
    "numpy_source_order": Case(ours.numpy_source_order),
    "numpy_shuffle": Case(ours.numpy_shuffle),
    "copy_arrays": Case(rooflines.copy_arrays),
    "preprocess": Case(preprocessing.preprocess),
    "preprocess_tft_alone": Case(preprocessing.preprocess_tft_alone),
    "preprocess_stock": Case(preprocessing.preprocess_stock),
    "images": Case(ours.images),
    "sqlite": Case(ours.sqlite),
    "small_job": Case(ours.small_job),
    "verify": Case(ours.verify),
    "verify_cold": Case(ours.verify_cold),
    "read_shards": Case(rooflines.read_shards),
    "read_shards_cold": Case(rooflines.read_shards_cold),
    "load": Case(ours.load),
    "load_tf": Case(ours.load_tf),
    "load_torch": Case(ours.load_torch),
    "load_by_hand": Case(baselines.load_by_hand),
    "gzip_write": Case(ours.gzip_write),
    "kernel_encode": Case(ours.kernel_encode),
    "tfx_bsl_encode": Case(baselines.tfx_bsl_encode),
    "help": Case(ours.command_help),
}


def _fast(name: str, case: str, beside: str, at_least: float) -> Bar:
    """Set how many times the rows a second of another case are wanted."""
    return Bar(name, "rows_per_second", case, beside, True, at_least)


def _flat(case: str) -> Bar:
    """Set how much more memory all tables may take than a few."""
    name = f"{case}, memory for all rows against few"
    return Bar(name, "peak_rss", case, f"{case}_few", False, 1.2)


BARS: tuple[Bar, ...] = (
    _fast("JSON Lines against its roofline", "shuffle_json", "roofline_json", 0.6),
    _fast("TFRecord against its roofline", "tfrecord_shuffle", "roofline_tfrecord_shuffle", 0.5),
    _fast("source order against its roofline", "source_order", "roofline_source_order", 0.6),
    _fast(
        "source order against its roofline, direct I/O",
        "source_order",
        "roofline_source_order_direct",
        0.6,
    ),
    _fast("shuffle against its roofline", "shuffle", "roofline_shuffle", 0.5),
    _fast("shuffle against its roofline, direct I/O", "shuffle", "roofline_shuffle_direct", 0.5),
    _fast("shuffle in memory against its roofline", "shuffle_fast", "roofline_shuffle_fast", 0.5),
    _fast("a DataFrame against the same rows of Parquet", "dataframe", "shuffle", 1 / 1.2),
    _fast("dicts against the same by hand", "dicts", "dicts_by_hand", 0.8),
    _fast("preprocessing against TFT and stock Beam", "preprocess", "preprocess_stock", 5),
    _fast("preprocessing against TFT alone", "preprocess", "preprocess_tft_alone", 1 / 1.4),
    _fast("tf() against TensorFlow by hand", "load_tf", "load_by_hand", 0.9),
    *(
        Bar(
            f"{case} against TensorFlow by hand, a core",
            "rows_per_cpu_second",
            case,
            "load_by_hand",
            True,
            5,
        )
        for case in ("load", "load_torch")
    ),
    _fast("kernel against tfx_bsl's encoder", "kernel_encode", "tfx_bsl_encode", 10),
    _fast("shuffle of Arrow files against Parquet files", "shuffle_arrow", "shuffle", 1),
    Bar("kernel, GB/s on one core", "gigabytes_per_second", "kernel_encode", None, True, 1.4),
    *(_flat(case) for case in ("source_order", "shuffle", "shuffle_json", "tfrecord_shuffle")),
    *(_flat(f"shuffle_{kind}") for kind in _KINDS),
    Bar("shuffle, peak memory in GB", "peak_rss_gigabytes", "shuffle", None, False, 1.5),
    Bar("--help, seconds", "seconds", "help", None, False, 0.5),
)
