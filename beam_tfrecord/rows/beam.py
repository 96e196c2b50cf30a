"""Connects batches to Beam: their coder, the global window, and counters.

Importing this module registers the coder. Without it, Beam would pickle batches, and a pickled
slice contains all rows of its parent. Arrow's IPC format writes only the rows of the slice.
"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

import beam_tfrecord.features.tensors  # noqa: F401 - registers its type with Arrow
from beam_tfrecord.rows.batch import Batch


def in_one_window(rows: beam.PCollection) -> beam.PCollection:
    """Return rows in the global window, without their former windows and triggers.

    An element of several sliding windows counts once for each window, as in any Beam sink.
    """
    if rows.windowing.is_default():
        return rows
    return rows | "OneWindow" >> beam.WindowInto(GlobalWindows())


def in_global_window(output: Any) -> Any:
    """Return an output, tagged or not, as a value in the global window."""
    if isinstance(output, beam.pvalue.TaggedOutput):
        return beam.pvalue.TaggedOutput(output.tag, in_global_window(output.value))
    window = GlobalWindow()
    return WindowedValue(output, window.max_timestamp(), [window])


def count(namespace: type, name: str, amount: int) -> None:
    """Add to a Beam counter in the namespace of a class.

    Counters are only for display, because runners may count repeated work differently.
    """
    Metrics.counter(namespace, name).inc(amount)


class BatchCoder(beam.coders.Coder):
    """Encodes a batch as a pickled head, then Arrow IPC streams of `Batch.data` and `numbers`."""

    def encode(self, value: Batch) -> bytes:
        """Return the batch as bytes."""
        sink = pa.BufferOutputStream()
        for columns in (value.data, value.numbers):
            if columns is not None:
                with pa.ipc.new_stream(sink, columns.schema) as writer:
                    writer.write_batch(columns)
        fields = dataclasses.fields(value)[1:]
        rest = {field.name: getattr(value, field.name) for field in fields}
        rest["numbers"] = value.numbers is not None
        head = pickle.dumps(rest, protocol=pickle.HIGHEST_PROTOCOL)
        return b"".join((len(head).to_bytes(8, "little"), head, sink.getvalue()))

    def decode(self, encoded: bytes) -> Batch:
        """Return the batch that `encode` wrote."""
        end = 8 + int.from_bytes(encoded[:8], "little")
        rest = pickle.loads(encoded[8:end])
        streams = pa.BufferReader(pa.py_buffer(encoded).slice(end))
        data = _next_batch(streams)
        rest["numbers"] = _next_batch(streams) if rest["numbers"] else None
        return Batch(data, **rest)

    def estimate_size(self, value: Batch) -> int:
        """Return an estimate of the encoded size in bytes, which runners use to plan."""
        return int(value.data.nbytes)

    def to_type_hint(self) -> type[Batch]:
        """Return the type that this coder encodes."""
        return Batch


def _next_batch(streams: pa.BufferReader) -> pa.RecordBatch:
    with pa.ipc.open_stream(streams) as reader:
        # Unpacking reads the end mark of the stream too, and the next stream begins after that.
        (batch,) = reader
    return batch


beam.coders.registry.register_coder(Batch, BatchCoder)
