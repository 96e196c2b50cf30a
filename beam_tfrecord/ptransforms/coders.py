"""The Beam coder of `Batch`.

Beam would pickle batches, and a pickled slice drags its whole parent along; Arrow's IPC format
writes the rows of the slice alone. Importing this module registers the coder.
"""

from __future__ import annotations

import dataclasses
import pickle

import apache_beam as beam
import pyarrow as pa

import beam_tfrecord.contract.tensors  # noqa: F401 - registers its type with Arrow
from beam_tfrecord.batch import Batch


class BatchCoder(beam.coders.Coder):
    """Writes a batch as a pickled head and an Arrow IPC stream."""

    def encode(self, value: Batch) -> bytes:
        """Return the batch as bytes."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.data.schema) as writer:
            writer.write_batch(value.data)
        fields = dataclasses.fields(value)[1:]
        rest = tuple(getattr(value, field.name) for field in fields)
        head = pickle.dumps(rest, protocol=pickle.HIGHEST_PROTOCOL)
        return b"".join((len(head).to_bytes(8, "little"), head, sink.getvalue()))

    def decode(self, encoded: bytes) -> Batch:
        """Return the batch that `encode` wrote."""
        end = 8 + int.from_bytes(encoded[:8], "little")
        rest = pickle.loads(encoded[8:end])
        with pa.ipc.open_stream(pa.py_buffer(encoded).slice(end)) as reader:
            data = reader.read_next_batch()
        return Batch(data, *rest)

    def estimate_size(self, value: Batch) -> int:
        """Return about the length of what `encode` returns; runners ask for it on the way."""
        return int(value.data.nbytes)

    def is_deterministic(self) -> bool:
        """A batch is never a grouping key."""
        return False

    def to_type_hint(self) -> type[Batch]:
        """Return the type this coder is for."""
        return Batch


beam.coders.registry.register_coder(Batch, BatchCoder)
