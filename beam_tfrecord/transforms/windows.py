"""The one window of bounded data, into which steps that gather rows put what comes in others."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue


def in_one_window(rows: beam.PCollection) -> beam.PCollection:
    """Return rows without the windows and triggers that they came in.

    An element of several sliding windows is one element in each of them, as to any Beam sink.
    """
    if rows.windowing.is_default():
        return rows
    return rows | "OneWindow" >> beam.WindowInto(GlobalWindows())


def in_global_window(output: Any) -> Any:
    """Return an output, tagged or not, as a value of the one window that bounded data has."""
    if isinstance(output, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(output.tag, in_global_window(output.value))
    window = GlobalWindow()
    return WindowedValue(output, window.max_timestamp(), [window])
