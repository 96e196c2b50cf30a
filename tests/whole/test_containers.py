"""The same rows give the same dataset, whatever they are filed in.

`scripts/prove/run containers` tries many more.
"""

import pytest

from tests.whole.containers import VARIANTS, judge

MODULES = {
    "delta": "deltalake",
    "duckdb": "duckdb",
    "iceberg": "pyiceberg",
    "pandas_frame": "pandas",
    "pandas_objects": "pandas",
    "polars_frame": "polars",
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.__name__)
def test_rows_give_one_dataset_in_any_container(tmp_path, variant, seed):
    if module := MODULES.get(variant.__name__):
        pytest.importorskip(module)
    judge(tmp_path, variant, seed)
