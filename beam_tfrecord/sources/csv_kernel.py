"""The CSV kernel: the compiled one, or the same in plain Python where it was not built."""

from __future__ import annotations

from beam_tfrecord.native import csv_reference
from beam_tfrecord.native.csv_reference import Target

try:
    from beam_tfrecord.native._csv import Filler, Typer, count_lines, scan
except ImportError:
    from beam_tfrecord.native.csv_reference import Filler, Typer, count_lines, scan

IS_NATIVE = Filler is not csv_reference.Filler

__all__ = ["IS_NATIVE", "Filler", "Target", "Typer", "count_lines", "scan"]
