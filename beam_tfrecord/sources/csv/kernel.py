"""The CSV kernel: the compiled one, or the same in plain Python where it was not built."""

from __future__ import annotations

import warnings

from beam_tfrecord import native
from beam_tfrecord.native import csv_reference
from beam_tfrecord.native.csv_reference import Target

try:
    from beam_tfrecord.native._csv import Filler, Typer, count_lines, scan
except ImportError as error:
    from beam_tfrecord.native.csv_reference import Filler, Typer, count_lines, scan

    # Where nothing was built at all, `native` has said so already.
    if native.IS_NATIVE:
        warnings.warn(
            f"the native csv kernel cannot be loaded ({error}), so csv is read about a hundred "
            "times slower: reinstall the package where there is a C compiler",
            stacklevel=2,
        )

IS_NATIVE = Filler is not csv_reference.Filler

__all__ = ["IS_NATIVE", "Filler", "Target", "Typer", "count_lines", "scan"]
