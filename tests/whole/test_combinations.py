"""Every option with every kind of element and source, pairwise.

`scripts/prove/run combinations` runs all pairs, the triples of the options that decide the order,
what must be refused, and the rows of a real table; here are the first cases, which hold most
pairs.
"""

from __future__ import annotations

import functools

import pytest

from tests.helpers.marks import slow_after
from tests.images.picture_combinations import (
    PICTURES,
    REFUSED_PICTURES,
    check_picture,
    is_sound_picture,
)
from tests.whole.combinations import (
    PIPELINES,
    REFUSED_PIPELINES,
    WRITES,
    Case,
    check_pipeline,
    check_write,
    covering,
    is_sound_pipeline,
    is_sound_write,
    whole_case,
)

CASES, SLOW_CASES = 6, 10
FAMILIES = {
    check_pipeline: (PIPELINES, is_sound_pipeline),
    check_write: (WRITES, is_sound_write),
    check_picture: (PICTURES, is_sound_picture),
}


@functools.cache
def first_cases(check, most):
    return covering(*FAMILIES[check], most=most)


@pytest.mark.parametrize("number", slow_after(CASES, range(CASES + SLOW_CASES)))
@pytest.mark.parametrize("check", FAMILIES, ids=lambda check: check.__name__)
def test_a_case(tmp_path, check, number):
    case = first_cases(check, CASES if number < CASES else CASES + SLOW_CASES)[number]
    check(case, tmp_path)


@pytest.mark.parametrize("levels", REFUSED_PIPELINES[::4], ids=str)
def test_what_cannot_be_written_is_refused(tmp_path, levels):
    assert check_pipeline(whole_case(levels), tmp_path) == "refused"


@pytest.mark.parametrize("levels", REFUSED_PICTURES, ids=str)
def test_pictures_that_cannot_be_written_are_refused(tmp_path, levels):
    case = {name: all_levels[0] for name, all_levels in PICTURES.items()} | {"size": 4} | levels
    assert check_picture(case, tmp_path) == "refused"


def test_a_covering_array_holds_every_pair():
    def is_sound(case: Case) -> bool:
        return not (case.get("a") == 0 and case.get("b") == 1)

    cases = covering({"a": range(3), "b": range(3), "c": range(2), "d": range(2)}, is_sound)
    assert len(cases) < 14
    for one, other, sizes in (("a", "b", (3, 3)), ("a", "c", (3, 2)), ("c", "d", (2, 2))):
        found = {(case[one], case[other]) for case in cases}
        wanted = {(i, j) for i in range(sizes[0]) for j in range(sizes[1])}
        assert found == wanted - ({(0, 1)} if (one, other) == ("a", "b") else set())
