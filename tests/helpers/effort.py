"""How much a run of the tests tries: the quick tier less than the whole."""

import os

WHOLE = os.environ.get("BEAM_TFRECORD_TESTS") == "all"


def examples(number, part=4):
    """Return how many of `number` random examples to try: all, or a part in the quick tier.

    Args:
        number: How many the whole tier tries.
        part: The quick tier tries one of so many, but at least five.
    """
    return number if WHOLE else max(5, number // part)
