"""The DoFn of the first page; workers unpickle it from here. Importing this imports Beam."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import tensorflow as tf
from stock_example import six_features


class SixFeatures(beam.DoFn):
    """Builds an example of each row."""

    def process(self, row: dict[str, Any]) -> Iterator[tf.train.Example]:
        """Yield the example of a row."""
        yield six_features(row)
