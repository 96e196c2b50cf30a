"""The kernel in plain Python: what the C one is tested against, and what runs in its absence.

`data` is any object with a buffer; `starts` is the int64 position in it of each framed record: le64
payload length, le32 masked CRC-32C of that length, payload, le32 masked CRC-32C of the payload.
"""

from __future__ import annotations

from beam_tfrecord.native.reference.encode import encode, encode_bound
from beam_tfrecord.native.reference.examples import (
    canonical_hashes,
    canonicalize,
    decode,
    discover,
)
from beam_tfrecord.native.reference.fit import fitting_records
from beam_tfrecord.native.reference.hashes import XXH64, crc32c, masked_crc32c, xxh64
from beam_tfrecord.native.reference.records import (
    find_frame,
    frame,
    frame_bound,
    gather,
    gather_run,
    hash_origins,
    hash_records,
    scan_frames,
    scan_run,
    sort_records,
)

__all__ = [
    "XXH64",
    "canonical_hashes",
    "canonicalize",
    "crc32c",
    "decode",
    "discover",
    "encode",
    "encode_bound",
    "find_frame",
    "fitting_records",
    "frame",
    "frame_bound",
    "gather",
    "gather_run",
    "hash_origins",
    "hash_records",
    "masked_crc32c",
    "scan_frames",
    "scan_run",
    "sort_records",
    "xxh64",
]
