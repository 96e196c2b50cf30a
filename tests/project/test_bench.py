"""The benchmark harness at a tiny size: that it measures, judges and survives a failing case."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.mark.slow
def test_cases_run_in_turn_and_one_that_cannot_run_stops_no_other(tmp_path):
    sizes = ["--rows", "20000", "--tables", "2", "--stock-rows", "5000", "--repeat", "2"]
    names = "roofline_source_order,shuffle_fast,kernel_encode"
    places = ["--work-dir", str(tmp_path / "work"), "--results-dir", str(tmp_path / "results")]
    done = subprocess.run(
        [sys.executable, str(BENCH / "bench.py"), *sizes, "--cases", names, *places],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert told == [
        "1/2 roofline_source_order",
        "1/2 kernel_encode",
        "2/2 roofline_source_order",
        "2/2 kernel_encode",
    ]
    (result,) = (tmp_path / "results").glob("*.json")
    cases = json.loads(result.read_text())["cases"]
    runs = cases["roofline_source_order"]["runs"]
    assert [(run["error"], run["rows"]) for run in runs] == [("", 40_000)] * 2
    for run in runs:
        # Two tables of 4 int64, 4 float32 and 2 strings: about 194 bytes a framed record.
        assert 40_000 * 185 < run["output_bytes"] < 40_000 * 200
        assert 0 < run["seconds"] < run["process_seconds"]
        # Python with Arrow and a few batches; ru_maxrss may have seen more than the samples.
        assert 50e6 < run["peak_rss"] <= run["maxrss_self"] * 1.1
    assert [run["rows"] for run in cases["kernel_encode"]["runs"]] == [100_000] * 2
    assert [run["error"] for run in cases["shuffle_fast"]["runs"]] == [
        "not run: there is no --fast-dir"
    ]
    assert list((tmp_path / "work").glob("case-*")) == []
    assert str(tmp_path) not in result.read_text() + done.stdout


def test_every_bar_names_cases_that_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from cases import BARS, CASES

    named = {bar.numerator for bar in BARS} | {bar.denominator for bar in BARS} - {None}
    assert named <= set(CASES)
