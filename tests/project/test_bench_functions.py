"""The benchmark of a user's own function: its slopes, its chart, and each case at a tiny size."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"
SVG = "{http://www.w3.org/2000/svg}"


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


def test_bars_are_as_long_as_the_rates_of_their_case():
    from bar_chart import COLORS, as_svg

    def ways(**rates):
        return {way: {"rows_per_second": {"median": rate}} for way, rate in rates.items()}

    cases = {
        "one": {"about": "a < b", "unit": "rows", "ways": ways(ours=50, limit=200, stock=10)},
        "two": {"about": "", "unit": "images", "ways": ways(ours=7, limit=None, one_worker=9)},
    }
    found = {"cases": cases, "settings": {"processes": 2}, "machine": {"cores": 2}}
    picture = ElementTree.fromstring(as_svg(found))
    bars = [(bar.get("fill"), float(bar.get("width"))) for bar in picture.iter(f"{SVG}rect")]
    ours, limit, stock = (COLORS[way] for way in ("ours", "limit", "stock"))
    longest = bars[1][1]
    assert bars == [
        (ours, longest / 4), (limit, longest), (stock, longest / 20), (ours, longest)
    ]  # fmt: skip
    width, height = map(float, picture.get("viewBox").split()[2:])
    assert longest < width
    assert all(float(text.get("y")) < height for text in picture.iter(f"{SVG}text"))
    assert "http://" not in as_svg(found).replace("http://www.w3.org/2000/svg", "")


@pytest.mark.slow
def test_each_case_runs_each_way(tmp_path):
    sizes = [
        "--rows",
        "400",
        "--stock-rows",
        "200",
        "--images",
        "8",
        "--pixels",
        "64x48",
        "--resize",
        "24",
    ]
    places = ["--work-dir", str(tmp_path / "work"), "--results-dir", str(tmp_path / "results")]
    done = subprocess.run(
        [
            sys.executable,
            str(BENCH / "user_functions.py"),
            *sizes,
            *places,
            "--ways",
            "ours,limit,stock",
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    (result,) = (tmp_path / "results").glob("*.json")
    found = json.loads(result.read_text())
    assert len(found["cases"]) == 5
    for case, of in found["cases"].items():
        for way in ("ours", "limit", "stock"):
            figures = of["ways"][way]
            assert (case, way, figures["error"]) == (case, way, "")
            ((small, large),) = figures["runs"]
            assert large["rows"] == 4 * small["rows"]
            assert large["output_bytes"] > small["output_bytes"] > 0
            assert min(figures["peak_pss"]) > 20e6
        assert f"| {case} | ours " in done.stdout
    # Ours and the limit store the same records, ours with a manifest and indexes beside them.
    ours, limit = (
        found["cases"]["map_rows_hint"]["ways"][way]["runs"][0][1]["output_bytes"]
        for way in ("ours", "limit")
    )
    assert limit < ours < 1.5 * limit + 100_000
    assert str(tmp_path) not in result.read_text() + done.stdout
