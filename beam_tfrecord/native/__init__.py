"""One namespace of the kernel: C where it was built, the same in plain Python where it was not.

`IS_NATIVE` tells which one it is. `reference` documents every function.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from beam_tfrecord.native.values import (
    BYTES_KIND,
    FLOAT_KIND,
    FLOAT_OVERFLOW,
    INT64_KIND,
    INTEGER_OVERFLOW,
    INVALID_UTF8,
    KIND_NAMES,
    NULL_IN_LIST,
    REJECT_CODES,
    TOO_LARGE,
    WHOLE_ROW,
    Column,
    Encoded,
    FitRule,
    Found,
    Frames,
    Run,
)

IS_NATIVE: bool = True

if TYPE_CHECKING:
    import beam_tfrecord.native.reference as kernel
else:
    try:
        from beam_tfrecord.native import _records as kernel
    except ImportError:
        import beam_tfrecord.native.reference as kernel

        IS_NATIVE = False
        warnings.warn(
            "the native kernel of beam_tfrecord is not built, so encoding is about a hundred times "
            "slower: install a C compiler, then `pip install --force-reinstall beam-tfrecord`",
            RuntimeWarning,
            stacklevel=2,
        )

XXH64 = kernel.XXH64
canonical_hashes = kernel.canonical_hashes
canonicalize = kernel.canonicalize
crc32c = kernel.crc32c
decode = kernel.decode
discover = kernel.discover
encode = kernel.encode
encode_bound = kernel.encode_bound
find_frame = kernel.find_frame
fitting_records = kernel.fitting_records
frame = kernel.frame
frame_bound = kernel.frame_bound
gather = kernel.gather
gather_run = kernel.gather_run
hash_origins = kernel.hash_origins
hash_records = kernel.hash_records
masked_crc32c = kernel.masked_crc32c
scan_frames = kernel.scan_frames
scan_run = kernel.scan_run
sort_records = kernel.sort_records
xxh64 = kernel.xxh64

__all__ = [
    "BYTES_KIND",
    "FLOAT_KIND",
    "FLOAT_OVERFLOW",
    "INT64_KIND",
    "INTEGER_OVERFLOW",
    "INVALID_UTF8",
    "IS_NATIVE",
    "KIND_NAMES",
    "NULL_IN_LIST",
    "REJECT_CODES",
    "TOO_LARGE",
    "WHOLE_ROW",
    "XXH64",
    "Column",
    "Encoded",
    "FitRule",
    "Found",
    "Frames",
    "Run",
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
