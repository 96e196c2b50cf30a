"""The benchmark harness at a tiny size: that it measures, judges and survives a failing case."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def run_bench(*arguments, folder):
    places = ["--work-dir", str(folder / "work"), "--results-dir", str(folder / "results")]
    return subprocess.run(
        [sys.executable, str(BENCH / "bench.py"), *arguments, *places],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_cases_run_in_turn_and_one_that_cannot_run_stops_no_other(tmp_path):
    sizes = ["--rows", "20000", "--tables", "2", "--stock-rows", "5000", "--repeat", "2"]
    names = "roofline_source_order,shuffle_fast,kernel_encode"
    done = run_bench(*sizes, "--cases", names, folder=tmp_path)
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


def test_unknown_case_is_named(tmp_path):
    done = run_bench("--cases", "shufle", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("bench: no case shufle: there are source_order, ")


def test_tables_follow_from_the_seed(on_path):
    from tables import make_table

    table = make_table(100, seed=7)
    assert table.equals(make_table(100, seed=7))
    assert not table.equals(make_table(100, seed=8))
    assert [str(field.type) for field in table.schema] == (
        ["float"] * 4 + ["int64"] * 4 + ["string"] * 2
    )
    assert table["s0"][0].as_py().startswith("category_")
    assert table["s1"][0].as_py().startswith("user-")


def test_bars_compare_medians_of_the_runs_that_worked(on_path):
    from cases import Bar
    from measure import Outcome
    from report import judge

    def took(*seconds):
        return [Outcome(seconds=it, rows=1000, output_bytes=4000, peak_rss=10) for it in seconds]

    results = {
        "ours": [*took(1.0, 2.0, 9.0), Outcome(error="broke")],
        "theirs": took(20.0),
        "broken": [Outcome(error="broke")],
    }
    bars = [
        Bar("a", "rows_per_second", "ours", "theirs", True, 8.0),
        Bar("b", "rows_per_second", "ours", "theirs", True, 20.0),
        Bar("c", "seconds", "ours", None, False, 1.0),
        Bar("d", "bytes_per_row", "ours", None, False, 4.0),
        Bar("e", "rows_per_second", "ours", "broken", True, 1.0),
        Bar("f", "rows_per_second", "absent", "theirs", True, 1.0),
    ]
    judged = [(it.measured, it.met, it.verdict) for it in judge(results, bars)]
    assert judged == [
        (10.0, True, "met by 25%"),
        (10.0, False, "MISSED by 50%"),
        (2.0, False, "MISSED by 100%"),
        (4.0, True, "met by 0%"),
        (None, None, "not measured"),
        (None, None, "not measured"),
    ]


def test_every_bar_names_cases_that_exist(on_path):
    from cases import BARS, CASES

    named = {bar.numerator for bar in BARS} | {bar.denominator for bar in BARS} - {None}
    assert named <= set(CASES)


def test_rss_is_the_sum_over_the_whole_session(on_path):
    from measure import session_rss

    # A process that starts another one, each with 100 MB that are really there.
    hold = "held = b'x' * 100_000_000; print('ready', flush=True); input()"
    parent = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {hold!r}], stdin=subprocess.PIPE)\n"
        f"{hold}\nchild.communicate(b'\\n')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", parent],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout
    assert [process.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
    held = session_rss(process.pid)
    process.communicate(b"\n")
    assert 200e6 < held < 260e6
    assert session_rss(process.pid) == 0


@pytest.mark.slow
def test_interval_of_a_ratio_is_that_of_students_t(on_path):
    from compare import interval_of

    # Logarithms 0, l and 2 l with l = log 1.1: mean l, deviation l, and t of 2 degrees is 4.3027.
    interval = interval_of([1.0, 1.1, 1.21])
    assert interval.estimate == pytest.approx(1.1)
    assert interval.low == pytest.approx(0.8681, abs=1e-4)
    assert interval.high == pytest.approx(1.3939, abs=1e-4)


@pytest.mark.slow
def test_compare_runs_both_trees_in_turn(tmp_path):
    root = BENCH.parents[1]
    arguments = ["--cases", "source_order", "--pairs", "2", "--most-pairs", "2"]
    sizes = ["--rows", "20000", "--tables", "1", "--results-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(BENCH / "compare.py"), str(root), *arguments, *sizes],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("source_order: ")
    (result,) = tmp_path.glob("*-compare.json")
    case = json.loads(result.read_text())["cases"]["source_order"]
    assert len(case["before_seconds"]) == len(case["after_seconds"]) == 2
    assert case["speed_ratio"]["low"] < case["speed_ratio"]["estimate"]
    assert str(root) not in result.read_text()


@pytest.mark.slow
def test_loaders_deliver_every_example_once_and_are_measured(tmp_path):
    names = "array_record,tensorflow,beam_tfrecord-tf"
    sizes = ["--place", str(tmp_path / "place"), "--results-dir", str(tmp_path / "results")]
    sizes += ["--rows", "5000", "--pictures", "800", "--loaders", names]
    for task in (["prepare"], ["check"], ["measure", "--repeats", "1", "--seconds", "0.2"]):
        done = subprocess.run(
            [sys.executable, str(BENCH / "loaders.py"), *task, *sizes],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    (result,) = (tmp_path / "results").glob("*-loaders-check.json")
    checks = json.loads(result.read_text())["checks"]
    for kind, count in (("rows", 5000), ("pictures", 800)):
        for found in checks[kind].values():
            assert found | {"once": count, "never": 0, "several_times": 0} == found
    (result,) = (tmp_path / "results").glob("*-loaders.json")
    for found in json.loads(result.read_text())["runs"]["rows"].values():
        for epoch in found[0]["epochs"]:
            assert 0 < epoch["examples_per_s"] < 10**8
            assert epoch["peak_bytes"] > 50e6


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda batch: batch, (3, 0, 0)),
        (lambda batch: {**batch, "i0": [0, 1, 1]}, None),
        (lambda batch: {name: column[:2] for name, column in batch.items()}, (2, 1, 0)),
        (lambda batch: {**batch, "s1": [*batch["s1"][:2], "user"]}, None),
        (lambda batch: {**batch, "f0": batch["f0"].astype("float64")}, None),
    ],
)
def test_the_check_of_a_loader_sees_lost_and_changed_examples(on_path, tmp_path, change, found):
    import loader_data

    loader_data.make_rows(tmp_path, 3)
    source = loader_data.Source(tmp_path, "rows")
    check = loader_data.Check(source)
    batch = change(loader_data.number_arrays(source.row_dicts()))
    if found is None:
        with pytest.raises(ValueError, match="the values of column"):
            check.add(batch)
    else:
        check.add(batch)
        assert tuple(check.found().values()) == found
