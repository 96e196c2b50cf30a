"""How much a run of the tests tries: the quick tier less than the whole."""

import os

WHOLE = os.environ.get("BEAM_TFRECORD_TESTS") == "all"


def examples(number):
    """Return how many of `number` random examples to try: all, or a quarter in the quick tier."""
    return number if WHOLE else max(5, number // 4)
