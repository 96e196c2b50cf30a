"""Every option with every kind of element and source, pairwise.

`scripts/prove/run combinations` runs all pairs, the triples of the options that decide the order,
what must be refused, and the rows of a real table; here are the first cases, which hold most
pairs.
"""

import pytest

from tests.helpers.effort import WHOLE
from tests.images.picture_combinations import (
    PICTURES,
    REFUSED_PICTURES,
    check_picture,
    is_sound_picture,
)
from tests.whole.combinations import PIPELINES, check_pipeline, covering, is_sound_pipeline

CASES, SLOW_CASES = 6, 10


def first_cases(factors, is_sound):
    """Return the first cases as parameters of a test, later ones as slow ones."""
    cases = covering(factors, is_sound, most=CASES + SLOW_CASES * WHOLE)
    marked = [
        pytest.param(case, marks=[pytest.mark.slow] * (number >= CASES or "impute" in str(case)))
        for number, case in enumerate(cases)
    ]
    return pytest.mark.parametrize("case", marked, ids=str)


@pytest.mark.slow_after(1)
@pytest.mark.xdist_group("tensorflow")
@first_cases(PIPELINES, is_sound_pipeline)
def test_a_pipeline(tmp_path, case):
    check_pipeline(case, tmp_path)


@pytest.mark.slow_after(1)
@pytest.mark.xdist_group("tensorflow")
@first_cases(PICTURES, is_sound_picture)
def test_pictures(tmp_path, case):
    check_picture(case, tmp_path)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("levels", REFUSED_PICTURES, ids=str)
def test_pictures_that_cannot_be_written_are_refused(tmp_path, levels):
    case = {name: all_levels[0] for name, all_levels in PICTURES.items()} | {"size": 4} | levels
    assert check_picture(case, tmp_path) == "refused"
