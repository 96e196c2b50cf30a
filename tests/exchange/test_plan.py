import math

import pytest

from beam_tfrecord.exchange.merge_plan import (
    LOCAL_REQUEST_BYTES,
    REMOTE_REQUEST_BYTES,
    max_fan_in,
    run_bytes_for,
    section_bytes_for,
)


@pytest.mark.parametrize(
    ("request_bytes", "most"), [(REMOTE_REQUEST_BYTES, 137.4e9), (LOCAL_REQUEST_BYTES, 1.0995e12)]
)
def test_one_round_reaches_as_far_as_documented(request_bytes, most):
    for size, is_enough in ((int(most), True), (int(1.001 * most), False)):
        runs = math.ceil(size / run_bytes_for(size, request_bytes))
        assert (runs <= max_fan_in(request_bytes)) == is_enough


@pytest.mark.parametrize("size", [10**9, 10**12, 10**14])
def test_reads_of_a_store_are_large_for_any_size(size):
    run_bytes = run_bytes_for(size, REMOTE_REQUEST_BYTES)
    # With more runs than can be merged at once, a round first merges as many of them as can be.
    runs = min(math.ceil(size / run_bytes), max_fan_in(REMOTE_REQUEST_BYTES))
    assert section_bytes_for(runs, REMOTE_REQUEST_BYTES) / runs >= 10**6
