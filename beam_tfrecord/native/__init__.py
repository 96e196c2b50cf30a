"""The native kernel: C functions that encode, decode, check, hash and sort TFRecord records.

Its extension modules are `_records`, `_csv` for CSV text, and `_index` for single records by the
index of a shard. The ``.pyi`` files document all functions.
"""

from beam_tfrecord.native._index import find_blocks, index_records, pick_records, read_records
from beam_tfrecord.native._records import (
    XXH64,
    canonical_hashes,
    canonicalize,
    columns_of,
    crc32c,
    decode,
    discover,
    encode,
    find_frame,
    fitting_records,
    frame,
    frame_bound,
    gather,
    hash_origins,
    hash_records,
    masked_crc32c,
    scan_frames,
    scan_run,
    shortest_doubles,
    sort_records,
    xxh64,
)
from beam_tfrecord.native.kernel_types import (
    FLOAT_OVERFLOW,
    INTEGER_OVERFLOW,
    INVALID_UTF8,
    NULL_IN_LIST,
    REJECT_CODES,
    TOO_LARGE,
    WHOLE_ROW,
    Picked,
)
