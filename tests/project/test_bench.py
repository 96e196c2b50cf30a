"""The benchmark harness at a tiny size: that it measures, judges and survives a failing case."""

from pathlib import Path

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


def test_every_bar_names_cases_that_exist(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from cases import BARS, CASES

    named = {bar.numerator for bar in BARS} | {bar.denominator for bar in BARS} - {None}
    assert named <= set(CASES)


def test_every_peer_has_a_function_and_its_figures_a_table_and_a_chart(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import peer_jobs
    from bar_chart import as_svg
    from peers import FACTS, TOOLS, as_markdown, summary

    for name, tool in TOOLS.items():
        assert "command" in tool or callable(getattr(peer_jobs, name))
        assert len(tool["can"]) == len(FACTS["features"])
    ran = {"seconds": 2.0, "cpu_seconds": 3.0, "peak_pss": 10**9, "output_bytes": 5 * 10**8}
    good = summary([{**ran, "error": "killed"}, {**ran, "error": ""}], 8000, 10**9)
    bad = summary([{"error": "not to be had"}], 8000, 10**9)
    cases = {
        "rows": {"about": "a", "unit": "rows", "ways": {"ours": good, "ray": bad}},
        "images": {"about": "b", "unit": "images", "ways": {}},
    }
    chart = {"title": "c", "caption": "d", "labels": {"ours": "us", "ray": "them"}}
    found = {**FACTS, "cases": cases, "chart": chart}
    found |= {"machine": {"cores": 2}, "settings": {"rows": 8000}}
    table = as_markdown(found)
    assert "| beam-tfrecord write | 4 | 3 | 1.00 | 0.50 |" in table
    assert "- Ray Data, rows: not to be had" in table
    assert "4,000 rows/s" in as_svg(found)
