"""Notes on Arrow fields: what a source says of a column besides its type.

They stand in the metadata of the field, so that they travel with the batches to the encoder.
"""

from __future__ import annotations

from typing import TypedDict

import pyarrow as pa

_STORE, _DTYPE = b"beam_tfrecord.store", b"beam_tfrecord.dtype"


class Notes(TypedDict):
    """The notes on a field; see `beam_tfrecord.features.schema.Feature` for what they mean."""

    store: str
    dtype: str | None


def noted_field(
    name: str,
    arrow: pa.DataType,
    *,
    nullable: bool = True,
    store: str = "auto",
    dtype: str | None = None,
) -> pa.Field:
    """Return an Arrow field with the notes that are not those of every field."""
    notes = {} if store == "auto" else {_STORE: store}
    if dtype is not None:
        notes[_DTYPE] = dtype
    return pa.field(name, arrow, nullable, metadata=notes or None)


def notes_of(field: pa.Field) -> Notes:
    """Return the notes on a field."""
    found = field.metadata or {}
    dtype = found.get(_DTYPE)
    return Notes(
        store=found.get(_STORE, b"auto").decode(), dtype=None if dtype is None else dtype.decode()
    )
