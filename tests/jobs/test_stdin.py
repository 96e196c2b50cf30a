"""``-`` as an input: standard input, copied to a file that is removed again."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, TargetExists, UsageError
from beam_tfrecord.jobs import api
from tests.helpers import warm

CSV = b"id,name\n1,a\n2,b\n"
JSON = b'{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n'


class _Stdin:
    """Stands for `sys.stdin`."""

    def __init__(self, data, *, is_terminal=False):
        self.buffer = io.BytesIO(data)
        self._is_terminal = is_terminal

    def isatty(self):
        """Return whether it is a terminal."""
        return self._is_terminal


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The directory of temporary files."""
    path = tmp_path / "scratch"
    path.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


def _pipe(monkeypatch, data, **how):
    monkeypatch.setattr(sys, "stdin", _Stdin(data, **how))


@pytest.mark.parametrize(
    ("data", "from_", "name"),
    [
        (CSV, "csv", "stdin.csv"),
        (JSON, None, "stdin.json"),
        (JSON, "json", "stdin.json"),
        (b'\n [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]', None, "stdin.json"),
        (b"\xef\xbb\xbf" + JSON, None, "stdin.json"),
    ],
)
def test_stdin_is_read_and_removed(tmp_path, scratch, monkeypatch, data, from_, name):
    _pipe(monkeypatch, data)
    manifest = bt.write("-", tmp_path / "out", from_=from_, shuffle=False)
    assert [row["id"] for row in bt.load(tmp_path / "out")] == [1, 2]
    assert manifest.source is not None
    assert [file["path"] for file in manifest.source["files"]] == [name]
    assert not list(scratch.iterdir())


def test_another_copy_of_stdin_is_an_edit(tmp_path, scratch, monkeypatch):
    _pipe(monkeypatch, JSON)
    bt.write("-", tmp_path / "out")
    _pipe(monkeypatch, JSON)
    with pytest.raises(TargetExists, match="the input was edited since the dataset in"):
        bt.write("-", tmp_path / "out")
    _pipe(monkeypatch, JSON)
    bt.write("-", tmp_path / "out", overwrite=True)
    assert len(bt.load(tmp_path / "out")) == 2
    assert not list(scratch.iterdir())


def test_other_functions_read_stdin(tmp_path, scratch, monkeypatch):
    _pipe(monkeypatch, CSV)
    assert bt.schema("-", from_="csv").names == ("id", "name")
    _pipe(monkeypatch, JSON)
    assert bt.plan("-", tmp_path / "out")["input"]["files"] == 1
    _pipe(monkeypatch, JSON)
    assert bt.extract(["-"], tmp_path / "stage").rows == 2
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ("-", {}, "cannot tell what standard input holds: .*: pass --from csv"),
        (["-", "a.csv"], {}, "- is standard input, and has to be the only input: leave out"),
        ("-", {"from_": "parquet"}, "cannot read parquet from standard input, only csv or json"),
        ("-", {"runner": "dataflow"}, "dataflow workers cannot read standard input: write it to"),
        ("-", {"runner": "flink"}, "flink workers cannot read standard input: write it to a file"),
        ("-", {"runner": "zzz"}, "zzz"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(
    tmp_path, scratch, monkeypatch, inputs, options, message
):
    _pipe(monkeypatch, CSV)
    with pytest.raises(UsageError, match=message) as caught:
        bt.write(inputs, tmp_path / "out", **options)
    assert "\n" not in str(caught.value)
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "standard input is empty"), (b"\x1f\x8b\x08", "standard input is compressed: pipe")],
)
def test_empty_and_compressed_input_is_refused(scratch, monkeypatch, data, message):
    _pipe(monkeypatch, data)
    with pytest.raises((DataError, UsageError), match=message):
        bt.schema("-", from_="csv")
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("stream", [None, _Stdin(b"", is_terminal=True)])
def test_a_terminal_is_refused(monkeypatch, stream):
    monkeypatch.setattr(sys, "stdin", stream)
    with pytest.raises(UsageError, match="- is standard input, but nothing is piped to it"):
        bt.schema("-")


def test_a_full_disk_is_one_line(scratch, monkeypatch):
    def copy(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(api.shutil, "copyfileobj", copy)
    _pipe(monkeypatch, JSON)
    with pytest.raises(DataError, match=r"cannot copy standard input to .* \(No space left"):
        bt.schema("-")
    assert not list(scratch.iterdir())


@contextlib.contextmanager
def _command(scratch, *words):
    scratch.mkdir()
    line = [*warm.program(), "-m", "beam_tfrecord", *words]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(line, env={**os.environ, "TMPDIR": str(scratch)}, **pipes) as process:
        yield process


def _wait_for(directory, pattern):
    deadline = time.monotonic() + 60
    while not list(directory.glob(pattern)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_interrupt_while_stdin_is_copied_leaves_nothing(tmp_path):
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    with _command(scratch, "write", "-", str(out)) as process:
        assert process.stdin is not None
        process.stdin.write(JSON * 100_000)
        process.stdin.flush()
        _wait_for(scratch, "*/stdin.json")
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert not list(scratch.glob("beam-tfrecord-*"))
    assert not out.exists()


def test_the_command_line_reads_stdin(tmp_path):
    words = ("write", "-", str(tmp_path / "out"), "--split", "a=0.5,b=0.5")
    with _command(tmp_path / "scratch", *words) as process:
        _, errors = process.communicate(JSON, 60)
    assert process.returncode == 0, errors
    assert b"wrote 2 rows" in errors
