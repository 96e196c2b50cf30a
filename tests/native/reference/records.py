"""Framed records: scan, hash, sort and gather."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_tfrecord.native.values import FAULT_REASONS, Frames, Run
from tests.native.reference import wire
from tests.native.reference.hashes import as_bytes, masked_crc32c, xxh64

_PLACE_BYTES = 8
_MAX_LENGTH = 2**63 - 1 - wire.FRAME_BYTES

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]


def payload_of(data, starts, record):
    """Return the payload of a record.

    Raises:
        ValueError: The record does not lie inside the data.
    """
    payload = None
    if 0 <= record < len(starts):
        payload = wire.payload_at(data, int(starts[record]))
    if payload is None:
        raise ValueError(f"record {record}: does not lie inside the data")
    return payload


def hash_records(data, starts, seed):
    """Return the XXH64 of each payload: uint64[n]."""
    view = as_bytes(data)
    hashes = [xxh64(payload_of(view, starts, record), seed) for record in range(len(starts))]
    return np.array(hashes, np.uint64)


def hash_origins(unit_hash, rows, sub, seed):
    """Return the XXH64 of le64(unit hash) || le64(row) || le64(sub-index) for each row.

    Args:
        unit_hash: Hash of the unit's name.
        rows: int64[n].
        sub: int64[n]; None stands for zeros.
        seed: Of the hash.
    """
    if sub is not None and len(sub) != len(rows):
        raise ValueError(f"{len(sub)} sub-indices for {len(rows)} rows")
    subs = np.zeros(len(rows), np.int64) if sub is None else sub
    origins = (struct.pack("<Qqq", unit_hash, *pair) for pair in zip(rows, subs, strict=True))
    return np.array([xxh64(origin, seed) for origin in origins], np.uint64)


def frame_bound(array):
    """Return an upper bound of the bytes `frame` writes."""
    return int(array.nbytes) + wire.FRAME_BYTES * len(array)


def frame(array, out, at, starts):
    """Write each value of a binary or large_binary array as one record; return the bytes written.

    Raises:
        TypeError: The array is of another type.
        ValueError: A value is null, or `out` or `starts` is too short.
    """
    if array.null_count:
        raise ValueError("a null cannot be framed as a record")
    if array.type not in (pa.binary(), pa.large_binary()):
        raise TypeError(f"records must be binary or large_binary, not {array.type}")
    if len(starts) < len(array):
        raise ValueError(f"starts must have room for {len(array)} records")
    position = at
    for record, payload in enumerate(array.to_pylist()):
        framed = np.frombuffer(wire.framed(payload), np.uint8)
        if len(out) - position < len(framed):
            raise ValueError("out is too short: frame_bound(array) tells the bytes it needs")
        out[position : position + len(framed)] = framed
        starts[record] = position
        position += len(framed)
    return position - at


def sort_records(
    data,
    starts,
    splits,
    places,
    by_bytes,
):
    """Return the numbers of the records in order of (split, place): int64[n].

    Ties are in order of the payload's bytes with `by_bytes`, then in the order given.
    """
    if len(starts) != len(places) or (splits is not None and len(splits) != len(places)):
        raise ValueError("starts, splits and places must have one length")
    view = as_bytes(data)

    def key(record: int) -> tuple[int, int, bytes]:
        payload = bytes(payload_of(view, starts, record)) if by_bytes else b""
        return int(splits[record]) if splits is not None else 0, int(places[record]), payload

    return np.array(sorted(range(len(places)), key=key), np.int64)


def gather(data, starts, order, out, at):
    """Copy framed records in order to `out` from position `at` on; return the bytes written."""
    return _gather(data, starts, None, order, out, at)


def gather_run(
    data,
    starts,
    places,
    order,
    out,
    at,
):
    """Write run entries, le64 place and framed record, in order; return the bytes written."""
    if len(places) != len(starts):
        raise ValueError("starts and places must have one length")
    return _gather(data, starts, places, order, out, at)


def _gather(
    data,
    starts,
    places,
    order,
    out,
    at,
):
    view, position = as_bytes(data), at
    for record in map(int, order):
        size = len(payload_of(view, starts, record)) + wire.FRAME_BYTES
        start = int(starts[record])
        place = b"" if places is None else struct.pack("<Q", places[record])
        entry = np.frombuffer(place + bytes(view[start : start + size]), np.uint8)
        if len(out) - position < len(entry):
            raise ValueError("out is too short for the records")
        out[position : position + len(entry)] = entry
        position += len(entry)
    return position - at


def scan_run(data):
    """Index a buffer of whole run entries.

    Raises:
        ValueError: An entry is cut off or its length does not fit.
    """
    view, position = as_bytes(data), 0
    starts, places = [], []
    while position < len(view):
        payload = wire.payload_at(view, position + _PLACE_BYTES)
        if payload is None:
            raise ValueError(f"run entry at byte {position} does not fit into the data")
        places.append(struct.unpack_from("<Q", view, position)[0])
        starts.append(position + _PLACE_BYTES)
        position += _PLACE_BYTES + wire.FRAME_BYTES + len(payload)
    return Run(np.array(starts, np.int64), np.array(places, np.uint64))


def scan_frames(data, verify=True):
    """Index framed bytes up to the first fault or the first record that is not whole.

    Args:
        data: Bytes of a TFRecord file from the start of a record on; may end inside one.
        verify: Whether to check both checksums of each record.
    """
    view, position, fault = as_bytes(data), 0, 0
    starts = []
    while len(view) - position >= wire.HEAD_BYTES:
        length, length_crc = struct.unpack_from("<QI", view, position)
        if verify and length_crc != masked_crc32c(view[position : position + 8]):
            fault = 2
            break
        if length > _MAX_LENGTH:
            fault = 1
            break
        payload = wire.payload_at(view, position)
        if payload is None:
            break
        end = position + wire.FRAME_BYTES + length
        if verify and struct.unpack_from("<I", view, end - 4)[0] != masked_crc32c(payload):
            fault = 3
            break
        starts.append(position)
        position = end
    found = (position, FAULT_REASONS[fault]) if fault else None
    return Frames(np.array(starts, np.int64), position, found)


def find_frame(data, start):
    """Return the position from `start` on of the first whole record whose checksums are right.

    The size of the data where there is none.
    """
    view = as_bytes(data)
    for position in range(start, len(view) - wire.FRAME_BYTES + 1):
        length, length_crc = struct.unpack_from("<QI", view, position)
        payload = wire.payload_at(view, position) if length <= _MAX_LENGTH else None
        if payload is None or length_crc != masked_crc32c(view[position : position + 8]):
            continue
        end = position + wire.FRAME_BYTES + length
        if struct.unpack_from("<I", view, end - 4)[0] == masked_crc32c(payload):
            return position
    return len(view)
