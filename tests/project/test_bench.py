"""The benchmark harness at a tiny size: that it measures, judges and survives a failing case."""

from pathlib import Path

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


def test_every_bar_names_cases_that_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from cases import BARS, CASES

    named = {bar.numerator for bar in BARS} | {bar.denominator for bar in BARS} - {None}
    assert named <= set(CASES)
