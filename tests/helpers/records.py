"""TFRecord files of several kinds: shards of datasets, and files of other programs."""

from __future__ import annotations

import gzip
import struct

import google_crc32c
import numpy as np
import pyarrow as pa

from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.rows.batch import Batch
from tests.helpers.tf_example import BytesList, Example, Feature, Features, FloatList, Int64List


def masked_crc(data):
    crc = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(payload: bytes) -> bytes:
    """Return a record as TensorFlow writes it, by a library of checksums that is not ours."""
    length = struct.pack("<Q", len(payload))
    crcs = (struct.pack("<I", masked_crc(part)) for part in (length, payload))
    return length + next(crcs) + payload + next(crcs)


def framed_records(payloads):
    """Return records one behind the other, and their starts."""
    records = [framed(payload) for payload in payloads]
    return b"".join(records), np.cumsum([0, *map(len, records)], dtype=np.int64)[:-1]


def write_records(path, payloads):
    """Write a TFRecord file as another program does; compressed if its name ends in .gz."""
    data = b"".join(map(framed, payloads))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def read_records(path):
    """Yield the payloads of a file, whose frames must be right."""
    data = path.read_bytes()
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b\x08") else data
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        payload = data[at + 12 : at + 12 + size]
        assert data[at : at + size + 16] == framed(payload)
        yield payload
        at += size + 16


def manifest_of(schema, splits, **fields):
    """Return a manifest, of which the other fields have any values."""
    values = {"content": "0" * 16, "order": "shuffled", "source": None}
    return Manifest(schema=schema, splits=splits, **values | fields)


def write_shard(path, table, *, schema=None):
    """Write rows as the only shard of a dataset, whose manifest lies beside it."""
    schema, arena = schema or Schema.from_arrow(table.schema), Arena()
    (batch,) = table.combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema=table.schema)
    ]
    encoded = Encoder(schema).encode(Batch(batch), arena)
    assert not encoded.rejects
    data = arena.used_data().tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    shard = Shard(path.name, table.num_rows, len(data), data_hash(data))
    rejects = {"rows": 0, "xxh64": "0" * 16}
    manifest = manifest_of(schema, {"data": Split((shard,))}, order="source", rejects=rejects)
    path.with_name(f"{path.stem}-manifest.json").write_text(manifest.dumps())


def damage_record(path, number):
    """Change one byte of the payload of a record."""
    data, at = bytearray(path.read_bytes()), 0
    for _ in range(number):
        at += struct.unpack_from("<Q", data, at)[0] + 16
    data[at + 14] ^= 0xFF
    path.write_bytes(data)


def example(**features):
    """Return a serialized tf.train.Example, made by protobuf.

    A feature is a number, text, bytes, or a list of these; None sets the feature without a kind.
    """

    def feature(value):
        if value is None:
            return Feature()
        values = value if isinstance(value, list) else [value]
        if values and isinstance(values[0], bytes | str):
            encoded = [one.encode() if isinstance(one, str) else one for one in values]
            return Feature(bytes_list=BytesList(value=encoded))
        if values and isinstance(values[0], float):
            return Feature(float_list=FloatList(value=values))
        return Feature(int64_list=Int64List(value=values))

    made = Features(feature={name: feature(value) for name, value in features.items()})
    return Example(features=made).SerializeToString()
