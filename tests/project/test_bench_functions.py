"""The benchmark of a user's own function: its slopes, and cases at a tiny size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture(autouse=True)
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def test_starting_drops_out_of_the_figures():
    from measure import Outcome
    from user_functions import slope, summary_of_case

    def pair(rate, start):
        return tuple(
            Outcome(rows=rows, seconds=start + rows / rate, cpu_seconds=3 + 2 * rows / rate)
            for rows in (100, 400)
        )

    assert slope(pair(50, start=7), "rows") == pytest.approx(50)
    noise = (Outcome(rows=100, seconds=2.0), Outcome(rows=400, seconds=1.0))
    assert slope(noise, "rows") is None
    assert slope((pair(50, start=7)[0], Outcome(error="killed")), "rows") is None
    results = {
        ("map_rows_hint", "ours"): [pair(60, 1), pair(50, 9), pair(30, 3)],
        ("map_rows", "limit"): [pair(60, 1), pair(100, 1), pair(40, 1)],
    }
    found = summary_of_case("map_rows_hint", results)
    ours = found["ways"]["ours"]
    assert ours["rows_per_second"] == {"median": 50, "range": [30, 60]}
    assert (ours["cores"]["median"], ours["rows_per_cpu_second"]["median"]) == (2, 25)
    # The median of 1, 0.5 and 0.75: rounds are compared with themselves.
    assert found["ours_to_limit"] == {"median": 0.75, "range": [0.5, 1.0]}
    assert found["ours_to_stock"]["median"] is None


@pytest.mark.slow
def test_cases_run_each_way(tmp_path):
    words = (
        "--rows=400 --stock-rows=200 --images=8 --pixels=64x48 --resize=24 --ways=ours,limit "
        f"--cases=map_rows_hint --work-dir={tmp_path}/work "
        f"--results-dir={tmp_path}/results"
    )
    command = [sys.executable, str(BENCH / "user_functions.py"), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (result,) = (tmp_path / "results").glob("*.json")
    found = json.loads(result.read_text())
    assert "| map_rows_hint | ours " in done.stdout
    (case,) = found["cases"].values()
    written = {}
    for way in ("ours", "limit"):
        figures = case["ways"][way]
        assert (way, figures["error"]) == (way, "")
        ((small, large),) = figures["runs"]
        assert large["rows"] == 4 * small["rows"]
        assert large["output_bytes"] > small["output_bytes"] > 0
        assert min(figures["peak_pss"]) > 20e6
        written[way] = large["output_bytes"]
    # Ours and the limit store the same records, ours with a manifest and indexes beside them.
    assert written["limit"] < written["ours"] < 1.5 * written["limit"] + 100_000
    assert str(tmp_path) not in result.read_text() + done.stdout
