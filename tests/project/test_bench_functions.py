"""The benchmark of a user's own function: its slopes, and cases at a tiny size."""

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
