"""Writers on a store with faults by seeds, and a model of all orders of their steps."""

from __future__ import annotations

import collections
import itertools
import logging
from typing import Any

from tests.publish.model import COMPACT, Model
from tests.publish.schedules import APPENDS, COMMANDS, publish

OPERATIONS = ("A", "AB", "O!", COMPACT)


def prove(*, schedules: int = 10_000, seed: int = 0) -> dict[str, Any]:
    """Return how many schedules ran, how their commands ended, and the states of the model.

    There are so many schedules of jobs that write, of jobs that append, too, and of those whose
    requests may come after the lease was lost.

    Raises:
        AssertionError: A dataset was not whole, or a command did not end well; with the seed.
    """
    logging.disable()
    ended: collections.Counter[str] = collections.Counter()
    requests = 0
    kinds = ((COMMANDS, True), (APPENDS, True), (APPENDS[:3], False))
    for number, (commands, is_prompt) in itertools.product(range(seed, seed + schedules), kinds):
        ends, made = publish(number, commands=commands, is_prompt=is_prompt)
        requests += len(made)
        ended.update(one.partition(":")[0] for one in ends)
    pairs = list(itertools.product(OPERATIONS, repeat=2))
    states = {
        name: sum(
            Model(is_store=name == "store").search(*operations)
            for operations in itertools.combinations_with_replacement(pairs, 2)
        )
        for name in ("directory", "store")
    }
    return {
        "schedules": schedules,
        "seed": seed,
        "requests": requests,
        "commands ended": dict(sorted(ended.items())),
        "states of the model": states,
    }
