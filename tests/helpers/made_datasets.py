"""Datasets made by hand from tables: rows to splits and shards as a test says.

Hashes come from the `xxhash` package and the framing of records from TensorFlow's description of
it, so that what is read was not written by the reader's own helpers.
"""

import gzip

import numpy as np
import pyarrow as pa
import xxhash

from beam_tfrecord.features.feature import ColumnStats
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch
from tests.helpers.records import framed, manifest_of

# XXH64 of b"content" with seed 0: the seed of the hash over all examples.
CONTENT_SEED = xxhash.xxh64_intdigest(b"content", 0)


def encoded(table, schema):
    """Return the examples of a table's rows."""
    arena = Arena()
    payloads = []
    for data in table.to_batches():
        arena.reset()
        Encoder(schema).encode(Batch(data), arena)
        frames, starts = bytes(arena.used_data()), arena.used_starts().tolist()
        ends = [*starts[1:], len(frames)]
        payloads += [frames[a + 12 : b - 4] for a, b in zip(starts, ends, strict=True)]
    return payloads


def observed(table, schema):
    """Return the schema with missing counts, and the range of plain numbers."""
    seen = {}
    for feature in schema.features:
        column = table[feature.name]
        low = high = None
        if pa.types.is_integer(feature.type) or pa.types.is_floating(feature.type):
            values = [value for value in column.to_pylist() if value is not None]
            low, high = min(values, default=None), max(values, default=None)
        seen[feature.name] = ColumnStats(column.null_count, low, high)
    return schema.with_observed(seen)


def write_examples(directory, splits, schema, *, compression="", group=None, split_by=None):
    """Write examples by split and shard, with the manifest and ``schema.json``."""
    directory.mkdir(parents=True, exist_ok=True)
    written = {}
    content = 0
    for name, shards in splits.items():
        described = []
        for number, payloads in enumerate(shards):
            stream = b"".join(framed(payload) for payload in payloads)
            path = f"{name}-{number:05d}-of-{len(shards):05d}.tfrecord" + ".gz" * bool(compression)
            stored = gzip.compress(stream, mtime=0) if compression else stream
            (directory / path).write_bytes(stored)
            digest = f"{xxhash.xxh64_intdigest(stream):016x}"
            described.append(Shard(path, len(payloads), len(stream), digest))
            content += sum(xxhash.xxh64_intdigest(one, CONTENT_SEED) for one in payloads)
        written[name] = Split(tuple(described))
    text = schema.dumps().encode()
    (directory / "schema.json").write_bytes(text)
    manifest = manifest_of(
        schema,
        written,
        content=f"{content % 2**64:016x}",
        compression=compression,
        group=group,
        place="bytes",
        sidecars={"schema.json": f"{xxhash.xxh64_intdigest(text):016x}"},
        split_by=split_by,
    )
    (directory / "manifest.json").write_text(manifest.dumps())
    return manifest


def make_dataset(directory, table, *, splits=None, shards=2, compression="", features=None):
    """Write a table: `splits` are row numbers by name, cut into nearly equal shards."""
    arrow = Schema.from_arrow(table.schema)
    schema = observed(table, arrow if features is None else Schema(tuple(features)))
    payloads = encoded(table, schema)
    chosen = {"data": range(len(payloads))} if splits is None else splits
    cut = {
        name: [[payloads[row] for row in part] for part in np.array_split(list(rows), shards)]
        for name, rows in chosen.items()
    }
    return write_examples(directory, cut, schema, compression=compression)
