"""Every option with every kind of element and source, pairwise.

`scripts/prove/run combinations` runs all pairs, the triples of the options that decide the order,
what must be refused, and the rows of a real table; here are the first cases, which hold most
pairs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.combinations import (
    PIPELINES,
    REFUSED_PIPELINES,
    WRITES,
    check_pipeline,
    check_write,
    covering,
    is_sound_pipeline,
    is_sound_write,
    whole_case,
)

CASES = 16

pipelines = covering(PIPELINES, is_sound_pipeline)
writes = covering(WRITES, is_sound_write)


@pytest.mark.parametrize("case", pipelines[:CASES], ids=str)
def test_a_pipeline(tmp_path: Path, case: dict[str, Any]) -> None:
    check_pipeline(case, tmp_path)


@pytest.mark.parametrize("case", writes[:CASES], ids=str)
def test_write(tmp_path: Path, case: dict[str, Any]) -> None:
    check_write(case, tmp_path)


@pytest.mark.parametrize("levels", REFUSED_PIPELINES[::4], ids=str)
def test_what_cannot_be_written_is_refused(tmp_path: Path, levels: dict[str, Any]) -> None:
    assert check_pipeline(whole_case(levels), tmp_path) == "refused"


def test_a_covering_array_holds_every_pair() -> None:
    def is_sound(case: dict[str, Any]) -> bool:
        return not (case.get("a") == 0 and case.get("b") == 1)

    cases = covering({"a": range(3), "b": range(3), "c": range(2), "d": range(2)}, is_sound)
    assert len(cases) < 14
    for one, other, sizes in (("a", "b", (3, 3)), ("a", "c", (3, 2)), ("c", "d", (2, 2))):
        found = {(case[one], case[other]) for case in cases}
        wanted = {(i, j) for i in range(sizes[0]) for j in range(sizes[1])}
        assert found == wanted - ({(0, 1)} if (one, other) == ("a", "b") else set())
