"""The command line: what is typed, what reaches the functions, and the exit code."""

import json
import sqlite3

import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord.errors import RejectedRows, UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.options.jobs import WRITE_OPTIONS
from tests.helpers.cli_stand_ins import run
from tests.helpers.made_datasets import make_dataset


@pytest.mark.parametrize(
    ("words", "keyword", "value"),
    [
        (["--split", "train=0.9,test=0.1"], "splits", "train=0.9,test=0.1"),
        (["--group", "user,day"], "group", ["user", "day"]),
        (["--shards", "train=64,test=8"], "shards", "train=64,test=8"),
        (["--no-shuffle"], "shuffle", False),
        (["--seed", "7"], "seed", 7),
        (["--columns", 'a,"b, c"'], "columns", ["a", "b, c"]),
        (["--map", "prep.py:f"], "map", "prep.py:f"),
        (["--max-rejects", "10"], "max_rejects", 10),
        (["--overwrite"], "overwrite", True),
    ],
)
def test_every_flag_reaches_its_keyword(fake_job, words, keyword, value):
    ran = run("write", *words, "a.csv", "out")
    assert ran.exit_code == 0, ran.output
    assert fake_job.arguments[keyword] == value
    assert keyword in {option.keyword for option in WRITE_OPTIONS}


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--delimiter", ";"], {"delimiter": ";"}),
        # Not the same as no delimiter: files whose names end in .tsv have tabs.
        (["--delimiter", ","], {"delimiter": ","}),
        (["--delimiter", r"\t"], {"delimiter": "\t"}),
        (["--delimiter", "tab"], {"delimiter": "\t"}),
        (["--no-header"], {"header": False}),
        (["--names", "a,b"], {"names": ["a", "b"]}),
        (["--null", "-", "--null", "?"], {"null_words": ("-", "?")}),
        (["--types", "a=text,b=decimal(10, 2)"], {"types": {"a": "text", "b": "decimal(10, 2)"}}),
    ],
)
def test_source_options(fake_job, words, options):
    assert run("write", *words, "a.csv", "out").exit_code == 0
    assert fake_job.arguments["source_options"] == options
    fake_job.calls.clear()
    fake_job.result = Schema((Feature("x", "int64"),))
    assert run("schema", *words, "a.csv").exit_code == 0
    assert fake_job.calls == [("schema", (["a.csv"],), {"from_": None, **options})]


def test_words_after_two_dashes_are_beams(fake_job):
    words = ["--temp_location=/tmp/x", "--num_workers", "3", "--streaming"]
    ran = run("write", "a.csv", "out", "--seed", "1", "--", *words)
    assert ran.exit_code == 0, ran.output
    assert fake_job.arguments["pipeline_options"] == tuple(words)
    assert fake_job.arguments["seed"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--regoin=x"], "--regoin is not an option of Beam: did you mean --region?"),
        (["--seed=7"], "--seed is not Beam's: put it before '--'"),
        (["--shard-sise=7MB"], "is not an option of Beam: write --shard-size before '--'"),
        (["--runner=FlinkRunner"], "--runner goes before '--', as direct, flink, dataflow or"),
        (["--num_workers=many"], "argument --num_workers: invalid int value: 'many'"),
        (["lost"], "'lost' after '--' belongs to no Beam option: write --name=value"),
    ],
)
def test_beam_options_are_checked(fake_job, words, message):
    ran = run("write", "a.csv", "out", "--", *words)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: ")
    assert message in ran.stderr
    assert fake_job.calls == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wirte", "a.csv", "out"], "No such command 'wirte'. Did you mean 'write'?"),
        (["write", "a.csv", "out", "--tabel=t"], "'--tabel'. Did you mean '--table'? (see"),
        (["nothing", "a.csv"], "No such command 'nothing'. The commands are write, append"),
        (["write", "a.csv", "out", "--shard-sise", "1"], "'--shard-size'"),
        (["write", "a.csv", "out", "--save_main_session"], "Beam's own options go after '--' (see"),
        (["write", "a.csv"], "give at least one INPUT and, last, the OUTPUT directory"),
        (["write", "a.csv", __file__], "OUTPUT, the last path, is the file "),
        (["write", "a.csv", "out", "--limit", "0"], "0 is not in the range x>=1 (see"),
        (["write", "a.csv", "out", "--delimiter", "::"], "'::' is not one character"),
        (
            ["write", "a.csv", "out", "--delimiter", "t"],
            r"'t' is a letter or digit: write ';', or '\t' in quotes",
        ),
        (["write", "a.csv", "out", "--types", "x"], "is not of the form column=type"),
        (["show", "x", "--label", "y"], "--label is for --code keras or torch"),
        (["show", "x", "--code", "tf", "--json"], "--code cannot be combined with --json"),
        (
            ["write", "a.csv", "out", "--split", "train=0.8", "test=0.2"],
            "'test=0.2' is not a path: write the value of an option without spaces, such as",
        ),
    ],
)
def test_a_wrong_command_exits_with_2(fake_job, words, message):
    ran = run(*words)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert message in ran.stderr
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.rstrip().endswith(" --help)")
    assert fake_job.calls == []


def test_head_and_show_take_what_write_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("n;s\n1;x\n;y\n3;z\n")
    with sqlite3.connect("a.db") as database:
        database.execute("create table t (n int, s text)")
        database.executemany("insert into t values (?, ?)", [(1, "x"), (None, "y"), (3, "z")])
    np.savez("a.npz", n=np.arange(12), s=np.arange(12) / 2)
    table = "n  s\n1  x\n   y\n3  z\n"
    assert run("head", "a.csv", "--delimiter", ";").stdout == table
    assert run("head", "sqlite:///a.db", "--table", "t").stdout == table
    ran = run("head", "a.npz", "--json")
    assert [json.loads(line) for line in ran.stdout.splitlines()][9] == {"n": 9, "s": 4.5}
    assert ran.stderr == "10 of 12 rows: -n N shows more\n"
    shown = "a.csv: csv, 3 rows, 15 B\n\nfeature  type\nn        int64\ns        string\n"
    assert run("show", "a.csv", "--delimiter", ";").stdout == shown
    shown = json.loads(run("show", "a.npz", "--json").stdout)
    assert (shown["kind"], shown["examples"]) == ("numpy", 12)
    assert [one["type"] for one in shown["features"]] == ["int64", "double"]
    assert run("show", "sqlite:///a.db").stderr.startswith("error: pass --table or --query")
    assert "name only one" in run("head", "a.csv", "a.npz", "--split", "x").stderr


def test_head_warns_of_rejected_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("n,s\n1,x\n2\n3,z\n")
    ran = run("head", "a.csv")
    assert ran.stdout == "n  s\n1  x\n3  z\n"
    assert ran.stderr.startswith("warning: the row in a.csv:3 has 1 field")


def test_head_leaves_out_columns_that_the_terminal_has_no_room_for(monkeypatch, tmp_path):
    make_dataset(tmp_path, pa.table({"a": [1], "b": ["x" * 9]}), splits={"data": [0]})
    assert run("head", tmp_path).stdout == "a  b\n1  xxxxxxxxx\n"
    monkeypatch.setattr("beam_tfrecord.cli.dataset_commands._terminal_width", lambda: 11)
    assert run("head", tmp_path).stdout == "a\n1\n… and 1 more column\n"


def test_errors_of_the_package_are_one_line_and_their_exit_code(fake_job):
    fake_job.error = UsageError("splits sum to 2, not to 1")
    ran = run("write", "a.csv", "out")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (2, "", "error: splits sum to 2, not to 1\n")
    fake_job.error = RejectedRows("3 rows were rejected")
    ran = run("write", "a.csv", "out")
    assert (ran.exit_code, ran.stderr) == (1, "error: 3 rows were rejected\n")


def test_an_unexpected_error_is_one_line_unless_debugging(fake_job):
    fake_job.error = RuntimeError("worker lost\nTraceback of another process\n")
    ran = run("write", "a.csv", "out")
    assert ran.exit_code == 2
    assert ran.stderr == (
        "error: unexpected RuntimeError: worker lost (run with --debug for the traceback)\n"
    )
    assert "Traceback of another process" in run("write", "a.csv", "out", "--debug").stderr


def test_an_error_of_the_system_names_the_file(fake_job):
    fake_job.error = PermissionError(13, "Permission denied", "out/x")
    ran = run("write", "a.csv", "out")
    assert (ran.exit_code, ran.stderr) == (
        2,
        "error: cannot access 'out/x': permission denied: check the path and its permissions\n",
    )


def test_an_interrupt_says_that_nothing_was_published(fake_job):
    fake_job.error = KeyboardInterrupt()
    ran = run("write", "a.csv", "out")
    assert (ran.exit_code, ran.stderr) == (130, "error: interrupted: nothing was published\n")
    assert run("plan", "a.csv", "out").stderr == "error: interrupted\n"


@pytest.mark.parametrize("words", [["show", ""], ["head", ""], ["verify", ""], ["diff", ".", ""]])
def test_an_empty_dataset_is_not_the_current_directory(words, tmp_path, monkeypatch):
    make_dataset(tmp_path / "a", pa.table({"x": [1]}))
    monkeypatch.chdir(tmp_path / "a")
    ran = run(*words)
    assert ran.exit_code == 2
    assert ran.stderr == "error: a path is empty: give a file, a directory or a URL\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--group", "a", "--group", "b"], "--group is given 2 times: give it once, with commas"),
        (["--types", "a=string", "--types=b=float32"], "--types is given 2 times: give it once, "),
        (["--split", "a=1", "--limit", "5", "--split", "b=1"], "--split is given 2 times"),
        (["--limit", "5", "--limit", "5"], "--limit is given 2 times: give it once (see"),
    ],
)
def test_an_option_that_is_there_twice_is_refused(fake_job, words, message):
    ran = run("write", "a.csv", "out/", *words)
    assert ran.exit_code == 2
    assert ran.stderr.startswith(f"error: {message}"), ran.stderr
    assert fake_job.calls == []


def test_flags_and_options_that_may_be_repeated_are_not_refused(fake_job):
    ran = run("write", "a.csv", "out/", *["--null", "NA", "--null", "?", "--union", "--union"])
    assert ran.exit_code == 0, ran.output
    assert fake_job.arguments["source_options"] == {"null_words": ("NA", "?"), "union": True}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["write", "--sep", ";"], "No such option '--sep'. Did you mean '--delimiter'?"),
        (["write", "--force"], "No such option '--force'. Did you mean '--overwrite'?"),
        (["write", "--na-values", "x"], "No such option '--na-values'. Did you mean '--null'?"),
        (["schema", "--json"], "No such option '--json'"),
        (["extract", "--schema", "x"], "No such option '--schema'. Give it to 'write'"),
        (["write", "--output", "out"], "No such option '--output'. OUTPUT is the last path"),
        (["write", "-o", "out"], "No such option '-o'. OUTPUT is the last path"),
        (["write", "--null"], "Option '--null' requires an argument"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_the_option_that_is_likely_meant_is_named(words, message):
    ran = run(words[0], "a.csv", *words[1:])
    assert ran.exit_code == 2
    assert ran.stderr == f"error: {message} (see cli {words[0]} --help)\n"


def test_head_says_that_there_are_more_rows_unless_their_number_was_asked_for(tmp_path):
    make_dataset(tmp_path, pa.table({"x": list(range(12))}))
    assert run("head", tmp_path).stderr == "10 of 12 rows: -n N shows more\n"
    assert run("head", tmp_path, "-n", 3).stderr == ""
    make_dataset(tmp_path / "ten", pa.table({"x": list(range(10))}))
    assert run("head", tmp_path / "ten").stderr == ""
