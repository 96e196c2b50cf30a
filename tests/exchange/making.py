"""Runs made by hand, byte by byte, and shards read by hand."""

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa

from beam_tfrecord.exchange.merge import Merger
from beam_tfrecord.exchange.merge_plan import plan_merges
from beam_tfrecord.job_state.run_files import SpillRun, count_bins, footer, merge_counts
from beam_tfrecord.rows.batch import Batch, Origin
from tests.helpers.records import framed


def write_entries(directory, entries, names, *, shift, name):
    """Write a run of entries, sorted by split as listed in `names`, sort key and payload."""
    ordered = sorted(entries, key=lambda entry: (names.index(entry[0]), *entry[1:]))
    frames = [framed(payload) for _, _, payload in ordered]
    counts = count_bins(
        names,
        np.array([names.index(split) for split, _, _ in ordered], np.uint16),
        np.array([sort_key for _, sort_key, _ in ordered], np.uint64),
        np.array([len(frame) for frame in frames], np.int64),
        shift,
    )
    data = b"".join(
        struct.pack("<Q", entry[1]) + frame for entry, frame in zip(ordered, frames, strict=True)
    )
    path = directory / name
    path.write_bytes(data + footer(counts))
    return SpillRun(str(path), counts)


def payloads(path):
    """Return the payloads of a TFRecord file, which must be whole."""
    data = Path(path).read_bytes()
    out, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        out.append(data[at + 12 : at + 12 + length])
        assert data[at : at + 16 + length] == framed(out[-1])
        at += 16 + length
    return out


def shards_of(directory, layout, runs):
    """Merge runs; return the payloads of each shard."""
    merger = Merger(layout, str(directory))
    return [
        payloads(piece.path)
        for sections in plan_merges(merge_counts(*(run.counts for run in runs)), layout)
        for piece in merger.merge(sections, [run.path for run in runs])
    ]


def batch_of(values, *, first=0, unit="u", index=0, task=0):
    """Return a batch of one int64 column ``x``."""
    data = pa.record_batch({"x": pa.array(values, pa.int64())})
    return Batch(data, Origin(unit, index, first), task=task)
