"""The same rows give the same dataset, whatever they are filed in.

`scripts/prove/run containers` tries many more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.whole.containers import VARIANTS, Variant, judge

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
def test_rows_give_one_dataset_in_any_container(
    tmp_path: Path, variant: Variant, seed: int
) -> None:
    if module := MODULES.get(variant.__name__):
        pytest.importorskip(module)
    judge(tmp_path, variant, seed)
