"""Leaves out exact copies of records in a merge, which sorts equal records next to each other."""

from __future__ import annotations

import dataclasses

import numpy as np

from beam_tfrecord.exchange.merge_plan import Section
from beam_tfrecord.exchange.spill import Buffer, SortedRecords
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.tally import Tally
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.records.examples import discovered_in
from beam_tfrecord.rows.batch import Batch


class CopyFilter:
    """Separates the first of equal records from its copies, and counts what the copies held.

    Args:
        tally: The tally of all records, which says how to read them.
    """

    def __init__(self, tally: Tally) -> None:
        self._has_examples = bool(tally.discovered)
        self._schema = tally.schema or Schema(())
        self._decoder, self._encoder = Decoder(self._schema), Encoder(self._schema)
        self._last: tuple[Section, bytes] | None = None
        self._buffer = Buffer()
        self._copies = Tally()

    def take(self) -> Tally:
        """Return the sums over the copies since the last call."""
        found, self._copies = self._copies, Tally()
        return found

    def firsts(self, records: SortedRecords, section: Section) -> SortedRecords:
        """Return some records of a section without copies, also of those of the previous call."""
        keys, sizes = records.sorted_keys, records.sizes
        if not len(keys):
            return records
        is_copy = np.zeros(len(keys), bool)
        alike = (keys[1:] == keys[:-1]) & (sizes[1:] == sizes[:-1])
        for at in (np.flatnonzero(alike) + 1).tolist():
            is_copy[at] = np.array_equal(records.framed(at), records.framed(at - 1))
        is_copy[0] = (section, records.framed(0).tobytes()) == self._last
        self._last = section, records.framed(-1).tobytes()
        if not is_copy.any():
            return records
        self._count(records.where(is_copy))
        return records.where(~is_copy)

    def _count(self, copies: SortedRecords) -> None:
        for data, sizes in copies.pieces(self._buffer, 0, len(copies.order), is_run=False):
            starts = np.cumsum(sizes) - sizes
            found = Tally(records=len(sizes))
            if self._has_examples:
                found = dataclasses.replace(found, discovered=discovered_in(data, starts))
            elif self._schema.features:
                rows = Batch(self._decoder.decode(data, starts))
                observed = self._encoder.encode(rows, Arena()).observed
                found = dataclasses.replace(found, observed=observed)
            self._copies = self._copies.merge(found)
