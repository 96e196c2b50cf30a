"""The command line: what is typed, what is said, and the exit code."""

import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import click
import pytest
from click.testing import CliRunner

from beam_tfrecord import job
from beam_tfrecord.cli import cli
from beam_tfrecord.cli_beam import check_beam_options
from beam_tfrecord.cli_params import parse_character, parse_count, parse_names, parse_types
from beam_tfrecord.cli_summary import render, summary, warnings_of
from beam_tfrecord.errors import RejectedRows, UsageError
from beam_tfrecord.manifest import Manifest, Shard, Split
from beam_tfrecord.options import WRITE_OPTIONS
from beam_tfrecord.schema import Feature, Observed, Schema


def manifest_of(*, splits=None, **fields):
    splits = {"train": (700, 70_000_000), "test": (300, 30_000_000)} if splits is None else splits
    values = {
        "fingerprint": "f",
        "content": "0" * 16,
        "order": "shuffled",
        "seed": 0,
        "compression": "",
        "key": None,
        "group": None,
        "place": "origin",
        "schema": Schema(()),
        "source": None,
        "rejects": {"rows": 0},
        "sidecars": {},
        "splits": {
            name: Split((Shard(f"{name}-00000-of-00001.tfrecord", rows, nbytes, "0" * 16),))
            for name, (rows, nbytes) in splits.items()
        },
    }
    return Manifest(**{**values, **fields})


class FakeJob:
    """Stands for `write`, `plan` and `schema`, and holds them to the real ones' signatures."""

    def __init__(self, monkeypatch):
        self.calls = []
        self.result = manifest_of()
        self.error = None
        for name in ("write", "plan", "schema"):
            monkeypatch.setattr(
                job, name, self._stand_in(name, inspect.signature(getattr(job, name)))
            )

    def _stand_in(self, name, signature):
        def call(*args, **kwargs):
            signature.bind(*args, **kwargs)
            self.calls.append((name, args, kwargs))
            if self.error is not None:
                raise self.error
            return self.result

        return call

    @property
    def arguments(self):
        ((_, _, kwargs),) = self.calls
        return kwargs


@pytest.fixture
def fake_job(monkeypatch):
    return FakeJob(monkeypatch)


def run(*words):
    return CliRunner().invoke(cli, [str(word) for word in words])


# --- what reaches the function -------------------------------------------------------------------


def test_plain_write_passes_the_defaults(fake_job):
    ran = run("write", "a.csv", "b.csv", "out/")
    assert ran.exit_code == 0, ran.output
    ((name, args, kwargs),) = fake_job.calls
    assert (name, args) == ("write", (["a.csv", "b.csv"], "out/"))
    assert kwargs.pop("progress").update is not None
    assert kwargs == {
        "from_": None,
        "splits": None,
        "split_column": None,
        "group": None,
        "key": None,
        "shards": None,
        "shard_size": None,
        "shuffle": True,
        "seed": 0,
        "limit": None,
        "compression": "none",
        "schema": None,
        "columns": None,
        "map": None,
        "max_rejects": 0,
        "overwrite": False,
        "runner": "direct",
        "pipeline_options": (),
        "source_options": {},
    }


@pytest.mark.parametrize(
    ("words", "keyword", "value"),
    [
        (["--from", "csv"], "from_", "csv"),
        (["--split", "train=0.9,test=0.1"], "splits", "train=0.9,test=0.1"),
        (["--split-column", "fold"], "split_column", "fold"),
        (["--group", "user,day"], "group", ["user", "day"]),
        (["--key", "id"], "key", ["id"]),
        (["--shards", "8"], "shards", 8),
        (["--shards", "train=64,test=8"], "shards", "train=64,test=8"),
        (["--shard-size", "64MiB"], "shard_size", "64MiB"),
        (["--no-shuffle"], "shuffle", False),
        (["--seed", "7"], "seed", 7),
        (["--limit", "100"], "limit", 100),
        (["--compression", "gzip"], "compression", "gzip"),
        (["--schema", "schema.json"], "schema", "schema.json"),
        (["--columns", 'a,"b, c"'], "columns", ["a", "b, c"]),
        (["--map", "prep.py:f"], "map", "prep.py:f"),
        (["--max-rejects", "10"], "max_rejects", 10),
        (["--max-rejects", "1%"], "max_rejects", "1%"),
        (["--max-rejects", "any"], "max_rejects", "any"),
        (["--overwrite"], "overwrite", True),
        (["--runner", "flink"], "runner", "flink"),
    ],
)
@pytest.mark.parametrize("command", ["write", "plan"])
def test_every_flag_reaches_its_keyword(fake_job, command, words, keyword, value):
    fake_job.result = {} if command == "plan" else fake_job.result
    ran = run(command, *words, "a.csv", "out")
    assert ran.exit_code == 0, ran.output
    assert fake_job.arguments[keyword] == value
    assert keyword in {option.keyword for option in WRITE_OPTIONS}


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["--delimiter", ";"], {"delimiter": ";"}),
        (["--delimiter", r"\t"], {"delimiter": "\t"}),
        (["--no-header"], {"header": False}),
        (["--names", "a,b"], {"names": ["a", "b"]}),
        (["--null", "-", "--null", "?"], {"null_words": ("-", "?")}),
        (["--encoding", "latin-1"], {"encoding": "latin-1"}),
        (["--types", "a=text,b=decimal(10, 2)"], {"types": {"a": "text", "b": "decimal(10, 2)"}}),
        (["--union"], {"union": True}),
    ],
)
def test_source_options(fake_job, words, options):
    assert run("write", *words, "a.csv", "out").exit_code == 0
    assert fake_job.arguments["source_options"] == options
    fake_job.calls.clear()
    fake_job.result = Schema((Feature("x", "int64"),))
    assert run("schema", *words, "a.csv").exit_code == 0
    assert fake_job.calls == [("schema", (["a.csv"],), {"from_": None, **options})]


def test_names_and_types_and_characters():
    assert parse_names("a, b ,c") == ["a", "b", "c"]
    assert parse_types("a = int64, b=timestamp[us, UTC],c=text") == {
        "a": "int64",
        "b": "timestamp[us, UTC]",
        "c": "text",
    }
    assert parse_count("007") == 7
    assert parse_count("-1") == "-1"
    for parse, text in [
        (parse_names, "a,,b"),
        (parse_names, ""),
        (parse_types, "a"),
        (parse_types, "a="),
        (parse_types, "a=int64,a=text"),
        (parse_character, ""),
        (parse_character, ";;"),
    ]:
        with pytest.raises(click.BadParameter):
            parse(text)


# --- Beam's options ------------------------------------------------------------------------------


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
        (["--xyzzyxyzzy"], "--xyzzyxyzzy is not an option of Beam"),
        (["--seed=7"], "--seed is not Beam's: put it before '--'"),
        (["--shard-sise=7MB"], "is not an option of Beam: write --shard-size before '--'"),
        (["--runner=FlinkRunner"], "--runner goes before '--', as direct, flink, dataflow or"),
        (["--num_workers=many"], "argument --num_workers: invalid int value: 'many'"),
        (["--temp_location"], "argument --temp_location: expected one argument"),
        (["lost"], "'lost' after '--' belongs to no Beam option: write --name=value"),
        (["-x"], "'-x' after '--' belongs to no Beam option"),
    ],
)
def test_beam_options_are_checked(fake_job, words, message):
    ran = run("write", "a.csv", "out", "--", *words)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: ")
    assert message in ran.stderr
    assert fake_job.calls == []


def test_no_beam_options():
    assert check_beam_options([]) == ()


# --- commands that are at fault ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wirte", "a.csv", "out"], "No such command 'wirte'. Did you mean 'write'?"),
        (["write", "a.csv", "out", "--shard-sise", "1"], "Did you mean one of: '--shard-size'"),
        (["write", "a.csv", "out", "--temp_location=x"], "Beam's own options go after '--'."),
        (["write"], "Missing argument 'INPUT... OUTPUT'"),
        (["write", "a.csv"], "give at least one INPUT and, last, the OUTPUT directory"),
        (["plan", "a.csv"], "give at least one INPUT and, last, the OUTPUT directory"),
        (["write", "a.csv", __file__], "OUTPUT, the last path, is the file "),
        (["write", "a.csv", "out", "--compression", "lz4"], "'lz4' is not one of 'none', 'gzip'."),
        (["write", "a.csv", "out", "--limit", "0"], "0 is not in the range x>=1."),
        (["write", "a.csv", "out", "--delimiter", "::"], "'::' is not one character"),
        (["write", "a.csv", "out", "--types", "x"], "is not of the form column=type"),
        (["show", "x", "--code", "jax"], "'jax' is not one of 'tf', 'keras', 'torch'."),
        (["show", "x", "--code", "tf", "--json"], "--code prints code alone"),
        (["head", "x", "-n", "-1"], "-1 is not in the range x>=0."),
        (["diff", "a"], "Missing argument 'B'."),
    ],
)
def test_a_wrong_command_exits_with_2(fake_job, words, message):
    ran = run(*words)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert message in ran.stderr
    assert fake_job.calls == []


@pytest.mark.parametrize("command", ["show", "head", "verify"])
def test_no_dataset_there(command, tmp_path):
    ran = run(command, tmp_path)
    assert ran.exit_code == 2
    assert ran.stderr.startswith(f"error: no dataset at {str(tmp_path)!r}")


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
    ran = run("write", "a.csv", "out", "--debug")
    assert ran.exit_code == 2
    assert "Traceback (most recent call last)" in ran.stderr
    assert "Traceback of another process" in ran.stderr


def test_an_error_of_the_system_names_the_file(fake_job):
    fake_job.error = PermissionError(13, "Permission denied", "out/x")
    ran = run("write", "a.csv", "out")
    assert (ran.exit_code, ran.stderr) == (2, "error: cannot access 'out/x': permission denied\n")


def test_an_interrupt_says_that_nothing_was_published(fake_job):
    fake_job.error = KeyboardInterrupt()
    ran = run("write", "a.csv", "out")
    assert (ran.exit_code, ran.stderr) == (130, "error: interrupted: nothing was published\n")
    assert run("plan", "a.csv", "out").stderr == "error: interrupted\n"


# --- what is said --------------------------------------------------------------------------------


def test_write_ends_with_a_summary_on_stderr(fake_job, tmp_path):
    ran = run("write", "a.csv", tmp_path / "out")
    assert ran.exit_code == 0
    assert ran.stdout == ""
    lines = ran.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("wrote 1,000 rows in 2 splits, 2 shards (100.0 MB) to ")


def test_a_dataset_that_is_there_already(fake_job, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    ran = run("write", "a.csv", tmp_path)
    assert ran.exit_code == 0
    assert ran.stderr == f"{tmp_path} already holds this dataset: nothing to do\n"


def test_a_replaced_dataset_is_not_taken_for_the_old_one(fake_job, tmp_path, monkeypatch):
    (tmp_path / "manifest.json").write_text("{}")

    def write(inputs, output, **kwargs):
        (tmp_path / ".new").write_text("{}")
        (tmp_path / ".new").rename(tmp_path / "manifest.json")
        return manifest_of()

    monkeypatch.setattr(job, "write", write)
    assert run("write", "a.csv", tmp_path, "--overwrite").stderr.startswith("wrote 1,000 rows")


def test_what_the_package_logs_comes_after_the_summary(fake_job, monkeypatch):
    import logging

    def write(inputs, output, **kwargs):
        for _ in range(2):
            logging.getLogger("beam_tfrecord.job").warning("column %r is left out", "x")
        logging.getLogger("apache_beam").warning("noise")
        return manifest_of()

    monkeypatch.setattr(job, "write", write)
    lines = run("write", "a.csv", "out").stderr.splitlines()
    assert lines[0].startswith("wrote ")
    assert lines[1:] == ["warning: column 'x' is left out"]


def test_warnings_of_python_are_lines_too(fake_job, monkeypatch):
    import warnings

    def write(inputs, output, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("the kernel is not built", RuntimeWarning, stacklevel=1)
            warnings.warn("a library's own worry", DeprecationWarning, stacklevel=1)
        return manifest_of()

    monkeypatch.setattr(job, "write", write)
    lines = run("write", "a.csv", "out").stderr.splitlines()
    assert lines[0] == "warning: the kernel is not built"
    assert lines[1].startswith("wrote ")
    assert len(lines) == 2


def test_summaries():
    assert summary(manifest_of(), "out/", seconds=3.21) == (
        "wrote 1,000 rows in 2 splits, 2 shards (100.0 MB) to out/ in 3.2 s"
    )
    assert summary(manifest_of(splits={"data": (1, 90)}), "o", seconds=0) == (
        "wrote 1 row, 1 shard (90 B) to o in 0.0 s"
    )


def test_summary_of_compressed_shards_says_both_sizes(tmp_path):
    (tmp_path / "data-00000-of-00001.tfrecord").write_bytes(b"x" * 25)
    manifest = manifest_of(splits={"data": (1, 90)}, compression="GZIP")
    assert "(25 B compressed from 90 B)" in summary(manifest, str(tmp_path), seconds=0)


def test_warnings():
    assert warnings_of(manifest_of(), "out") == []
    assert warnings_of(manifest_of(splits={}), "out") == [
        "the input holds no rows: the dataset has no shards"
    ]
    assert warnings_of(manifest_of(rejects={"rows": 2}, place="bytes"), "out") == [
        "2 rows rejected: the reasons are in out/rejects",
        "rows have no stable number here: their order follows from their bytes",
    ]
    lossy = Observed(max_relative_error=5.96e-8)
    schema = Schema(
        (
            Feature("fare", "float64", observed=lossy),
            Feature("id", "int64", observed=Observed()),
            Feature("tip", "float64", observed=Observed(max_relative_error=1e-9)),
        )
    )
    assert warnings_of(manifest_of(schema=schema), "out") == [
        "values of 'fare', 'tip' were rounded to float32 (relative error at most 6.0e-08): "
        '"store": "bytes" or "text" in --schema keeps them exact'
    ]


def test_plan_prints_lines_or_json_on_stdout(fake_job):
    fake_job.result = {
        "rows": None,
        "input_bytes": 4_000_000_000,
        "units": 1234,
        "exact": False,
        "splits": {"train": {"shards": 8}},
        "columns": ["a", "b"],
        "notes": [],
    }
    ran = run("plan", "a.csv", "out")
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "rows: unknown",
        "input bytes: 4.0 GB",
        "units: 1,234",
        "exact: no",
        "splits:",
        "  train:",
        "    shards: 8",
        "columns: a, b",
        "notes: none",
    ]
    assert json.loads(run("plan", "a.csv", "out", "--json").stdout) == fake_job.result


def test_lists_of_mappings_are_laid_out_in_line():
    assert render({"shards": [{"rows": 1000, "bytes": 10}]}) == ["shards: rows=1,000, bytes=10 B"]


def test_schema_prints_json_that_can_be_read_back(fake_job):
    fake_job.result = Schema((Feature("x", "int64", nullable=False), Feature("name", "text")))
    ran = run("schema", "a.csv", "--from", "csv")
    assert ran.stderr == ""
    assert Schema.loads(ran.stdout) == fake_job.result


# --- as a process --------------------------------------------------------------------------------


PROGRAM = [sys.executable, "-m", "beam_tfrecord"]
# Programs started elsewhere find the package of this tree, installed or not.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[1])}


def process(*words, cwd=None):
    return subprocess.run(
        [*PROGRAM, *words], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True
    )


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["write", "--help"], ["head", "-h"]])
def test_help_imports_nothing_heavy(words):
    code = (
        "import sys\n"
        "from beam_tfrecord.cli import cli\n"
        f"cli.main({words!r}, prog_name='beam-tfrecord', standalone_mode=False)\n"
        "heavy = 'apache_beam tensorflow pyarrow numpy tqdm'.split()\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.startswith("Usage: beam-tfrecord")
    assert ran.stderr == "[]\n"


def test_version_and_module():
    from beam_tfrecord import __version__

    ran = process("--version")
    assert (ran.returncode, ran.stdout) == (0, f"beam-tfrecord, version {__version__}\n")
    ran = process("show", "nowhere")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: no dataset at 'nowhere'")


def test_every_command_is_listed():
    ran = process("--help")
    assert list(cli.commands) == ["write", "plan", "schema", "show", "head", "verify", "diff"]
    for name in cli.commands:
        assert f"\n  {name} " in ran.stdout


# --- end to end ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """A dataset of 1,000 rows, written by the program from a CSV file."""
    directory = tmp_path_factory.mktemp("cli")
    rows = "".join(f"{i},name {i}\n" for i in range(1000))
    (directory / "t.csv").write_text(f"id,name\n{rows}")
    ran = process(*WRITE, cwd=directory)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == ""
    assert ran.stderr.startswith("wrote 1,000 rows in 2 splits, 2 shards (")
    return directory


WRITE = ["write", "t.csv", "out/", "--split", "train=0.9,test=0.1"]


def test_written_twice_is_written_once(dataset):
    ran = process(*WRITE, cwd=dataset)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr == "out/ already holds this dataset: nothing to do\n"


def test_another_dataset_in_the_way(dataset):
    ran = process("write", "t.csv", "out/", "--seed", "1", cwd=dataset)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: ")
    assert "--overwrite" in ran.stderr
    assert ran.stderr.count("\n") == 1


def test_reading_commands(dataset):
    out = dataset / "out"
    shown = run("show", out)
    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].endswith("(shuffled, seed 0)")
    assert json.loads(run("show", out, "--json").stdout)["examples"] == 1000
    counted = json.loads(run("show", out, "--json", "--counts", "name").stdout)["counts"]
    assert "name 7" in json.dumps(counted)
    compile(run("show", out, "--code", "tf").stdout, "code", "exec")

    lines = run("head", out, "--json", "-n", "3", "--split", "test").stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert len(rows) == 3
    assert all(row["name"] == f"name {row['id']}" for row in rows)
    assert len(run("head", out).stdout.splitlines()) == 11
    assert (run("head", out, "-n", "0").stdout, run("head", out, "-n", "0").stderr) == (
        "",
        "no rows\n",
    )

    sound = run("verify", out)
    assert (sound.exit_code, sound.stdout) == (0, "")
    assert sound.stderr == "verified 2 shards, 1,000 examples: no faults\n"
    assert json.loads(run("verify", out, "--json").stdout)["ok"] is True


def test_verify_and_diff_exit_with_1_where_the_data_is_at_fault(dataset, tmp_path):
    import shutil

    damaged = tmp_path / "damaged"
    shutil.copytree(dataset / "out", damaged)
    same = run("diff", dataset / "out", damaged)
    assert (same.exit_code, same.stderr) == (0, "the data is the same\n")

    shard = next(damaged.glob("test-*.tfrecord"))
    data = bytearray(shard.read_bytes())
    data[20] ^= 1
    shard.write_bytes(data)
    found = run("verify", damaged)
    assert found.exit_code == 1
    assert found.stdout.startswith(shard.name)
    assert json.loads(run("verify", damaged, "--json").stdout)["ok"] is False

    (tmp_path / "u.csv").write_text("id,name\n1,other\n")
    assert run("write", tmp_path / "u.csv", tmp_path / "other").exit_code == 0
    differs = run("diff", dataset / "out", tmp_path / "other")
    assert differs.exit_code == 1
    assert differs.stdout != ""
    assert differs.stderr == "the data differs\n"
    as_json = run("diff", dataset / "out", tmp_path / "other", "--json")
    assert json.loads(as_json.stdout)["same_data"] is False


def test_a_reader_that_goes_away_is_no_fault(dataset):
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [*PROGRAM, "head", "out", "-n", "1000", "--json"],
        cwd=dataset,
        env=ENVIRONMENT,
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_an_interrupted_job_publishes_nothing(tmp_path):
    (tmp_path / "t.csv").write_text("id\n1\n2\n")
    # The job tells that it runs, then waits to be interrupted.
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "def wait(row):\n"
        "    pathlib.Path('running').touch()\n"
        "    time.sleep(60)\n"
    )
    job_process = subprocess.Popen(
        [*PROGRAM, "write", "t.csv", "out", "--map", "slow.py:wait"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with job_process:
        while not (tmp_path / "running").exists():
            assert job_process.poll() is None, job_process.stderr.read()
            time.sleep(0.05)
        job_process.send_signal(signal.SIGINT)
        out, err = job_process.communicate()
    assert job_process.returncode == 130
    assert (out, err) == ("", "error: interrupted: nothing was published\n")
    assert not (tmp_path / "out" / "manifest.json").exists()
