"""The same rows give the same dataset, whatever they are filed in.

`scripts/prove/run containers` tries many more.
"""

import pytest

from tests.whole.containers import VARIANTS, judge

# What needs a package that the small environment lacks.
LARGE = ("delta", "hugging_face")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in VARIANTS]
)
def test_rows_give_one_dataset_in_any_container(tmp_path, variant, seed):
    judge(tmp_path, variant, seed)
