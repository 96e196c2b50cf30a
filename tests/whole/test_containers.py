"""The same rows give the same dataset, whatever they are filed in.

`scripts/prove/run containers` tries many more.
"""

import pytest

from tests.whole.containers import VARIANTS, judge

# What needs a package that the small environment lacks.
LARGE = ("delta", "duckdb", "hugging_face", "iceberg")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (one.__name__ in LARGE), id=one.__name__)
        for one in VARIANTS
    ],
)
def test_rows_give_one_dataset_in_any_container(tmp_path, variant, seed):
    judge(tmp_path, variant, seed)
