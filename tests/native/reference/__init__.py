"""The kernel in plain Python: the reference that tests compare the C kernel with.

`data` is any object with a buffer; `starts` is the int64 position in it of each framed record: le64
payload length, le32 masked CRC-32C of that length, payload, le32 masked CRC-32C of the payload.
"""

from tests.native.reference.encode import encode, encode_bound
from tests.native.reference.examples import (
    canonical_hashes,
    canonicalize,
    decode,
    discover,
    is_example,
)
from tests.native.reference.fit import fitting_records
from tests.native.reference.hashes import masked_crc32c, xxh64
from tests.native.reference.records import (
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
    "canonical_hashes",
    "canonicalize",
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
    "is_example",
    "masked_crc32c",
    "scan_frames",
    "scan_run",
    "sort_records",
    "xxh64",
]
