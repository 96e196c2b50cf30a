"""Outputs of `finish_bundle`, where Beam wants the window named."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue


def in_global_window(output: Any) -> Any:
    """Return an output, tagged or not, as a value of the one window that bounded data has."""
    if isinstance(output, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(output.tag, in_global_window(output.value))
    window = GlobalWindow()
    return WindowedValue(output, window.max_timestamp(), [window])
