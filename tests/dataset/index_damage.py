"""Damage to shards and their indexes, and what reading rows by number makes of it."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.format.manifest import Manifest

ROWS = 400
ENTRY = 24
WORDS = (0, 1, 2, 15, 16, 63, 64, 65, 1024, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1)


def flip(data: bytes, draw: random.Random) -> bytes:
    """Flip one to three bits."""
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 3))):
        changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def word(data: bytes, draw: random.Random) -> bytes:
    """Replace an aligned number of 8 bytes by one that is large, small, or near to it."""
    at = draw.randrange(len(data) // 8) * 8
    value = struct.unpack_from("<Q", data, at)[0]
    near = (value + draw.choice((-64, -16, -1, 1, 16, 64, 1024))) % 2**64
    new = struct.pack("<Q", draw.choice((near, draw.choice(WORDS))))
    return data[:at] + new + data[at + 8 :]


def rubbish(data: bytes, draw: random.Random) -> bytes:
    """Replace a range by random bytes or zeros."""
    start, stop = sorted(draw.choices(range(len(data) + 1), k=2))
    new = draw.choice((draw.randbytes(stop - start), bytes(stop - start)))
    return data[:start] + new + data[stop:]


def cut(data: bytes, draw: random.Random) -> bytes:
    """Cut off the end, or the begin."""
    at = draw.randrange(len(data))
    return draw.choice((data[:at], data[at:]))


def extend(data: bytes, draw: random.Random) -> bytes:
    """Add bytes at the end, or at the begin."""
    more = draw.choice((draw.randbytes(draw.randint(1, 64)), data))
    return draw.choice((data + more, more + data))


def drop(data: bytes, draw: random.Random) -> bytes:
    """Remove some entries, or all."""
    count = (len(data) - 32) // ENTRY
    start, stop = sorted(draw.choices(range(count + 1), k=2))
    return data[: start * ENTRY] + data[stop * ENTRY :]


def double(data: bytes, draw: random.Random) -> bytes:
    """Repeat some entries."""
    at = draw.randrange((len(data) - 32) // ENTRY) * ENTRY
    return data[:at] + data[at : at + ENTRY] * draw.choice((1, 2, 3, 500)) + data[at:]


def reorder(data: bytes, draw: random.Random) -> bytes:
    """Put the entries in another order."""
    entries = np.frombuffer(data[:-32], "<u8").reshape(-1, 3).copy()
    if draw.random() < 0.3:
        return entries[::-1].tobytes() + data[-32:]
    one, other = (draw.randrange(len(entries)) for _ in range(2))
    entries[[one, other]] = entries[[other, one]]
    return entries.tobytes() + data[-32:]


def shift(data: bytes, draw: random.Random) -> bytes:
    """Number the records of a range of blocks otherwise, without a contradiction inside of it."""
    entries = np.frombuffer(data[:-32], "<u8").reshape(-1, 3).copy()
    start, stop = sorted(draw.choices(range(len(entries) + 1), k=2))
    with np.errstate(over="ignore"):
        entries[start:stop, draw.choice((0, 0, 1))] += np.uint64(draw.choice((1, 3, 2**64 - 1)))
    return entries.tobytes() + data[-32:]


# Without the hash of the index, such a change could only be found by reading all of the shard.
CONSISTENT = (shift,)
ANY = (flip, word, rubbish, cut, extend)
OF_INDEX = (*ANY, drop, double, reorder)


def make(directory: Path) -> dict[str, bytes]:
    """Write a dataset of records of many sizes, and return its shards and indexes by name."""
    texts = ["x" * (row * row % (900 if row % 50 else 5000)) for row in range(ROWS)]
    pq.write_table(pa.table({"id": range(ROWS), "text": texts}), directory / "in.parquet")
    bt.write(directory / "in.parquet", directory / "out", shards=2)
    unlisted(directory / "out", directory / "unlisted")
    age(*directory.glob("*/*.tfrecord"), *directory.glob("*/_index/*"))
    paths = [*(directory / "out").glob("*.tfrecord"), *(directory / "out" / "_index").iterdir()]
    return {str(path.relative_to(directory / "out")): path.read_bytes() for path in sorted(paths)}


def age(*paths):
    """Give files an old time, so that a change directly afterwards makes another one for sure."""
    for path in paths:
        os.utime(path, (1, 1))


def put(path, data, draw):
    """Write a file in place, or put another one in its place."""
    if draw.random() < 0.5:
        path.write_bytes(data)
    else:
        path.with_name("new").write_bytes(data)
        path.with_name("new").replace(path)


def read_damaged(out, files, ids, draw):
    """Damage a file before or after it is opened, and read rows.

    Args:
        out: A sound dataset, which is sound again afterwards.
        files: Its shards and indexes.
        ids: The right rows.
        draw: Source of the case.

    Returns:
        The first error, or an empty text.

    Raises:
        AssertionError: A row is wrong, or an error is not one line that names a file.
    """
    name = draw.choice(sorted(files))
    of_index = OF_INDEX if "unlisted" in str(out) else OF_INDEX + CONSISTENT
    change = draw.choice(of_index if name.startswith("_index") else ANY)
    data = files[name]
    other = draw.choice(sorted(files))
    new = files[other] if draw.random() < 0.05 else change(data, draw)
    when = draw.randrange(3)
    ds = None
    if when:
        ds = bt.load(out)
        if when == 2:
            ds.take(range(ROWS))
    try:
        put(out / name, new, draw)
        ds = bt.load(out) if ds is None else ds
        errors = [read(ds, ids, draw) for _ in range(3)]
    finally:
        (out / name).write_bytes(data)
        age(out / name)
    return next(filter(None, errors), "")


def read(ds, ids, draw):
    """Read random rows; return the error, or an empty text if all rows are right."""
    indices = draw.choices(range(ROWS), k=draw.choice((1, 3, 40)))
    try:
        got = ds.take(indices)["id"].to_pylist()
    except BeamTFRecordError as error:
        message = str(error)
    else:
        assert got == [ids[index] for index in indices]
        return ""
    assert "\n" not in message
    assert ds.directory in message
    return message


def unlisted(out, target):
    """Copy a dataset; its manifest does not list the indexes, as if they were made later."""
    shutil.copytree(out, target)
    manifest = Manifest.load(target)
    sidecars = {name: xxh64 for name, xxh64 in manifest.sidecars.items() if "_index" not in name}
    (target / "manifest.json").write_text(dataclasses.replace(manifest, sidecars=sidecars).dumps())
    return target
