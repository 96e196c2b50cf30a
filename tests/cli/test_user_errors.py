"""What people run into: a clear error, the right exit code, nothing published."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from beam_tfrecord.cli.main import cli
from tests.helpers.datasets import visible_names


def _missing(folder):
    return [str(folder / "nope.csv")]


def _empty_directory(folder):
    (folder / "empty").mkdir()
    return [str(folder / "empty"), "--from", "csv"]


def _malformed_row(folder):
    (folder / "bad.csv").write_text("a,b\n1,2\n3,4,5\n6,7\n")
    return [str(folder / "bad.csv")]


def _truncated_parquet(folder):
    pq.write_table(pa.table({"x": range(1000)}), folder / "whole.parquet")
    data = (folder / "whole.parquet").read_bytes()
    (folder / "whole.parquet").unlink()
    (folder / "cut.parquet").write_bytes(data[: len(data) // 2])
    return [str(folder / "cut.parquet")]


def _conflict(folder):
    (folder / "1.csv").write_text("fare\n1.5\n")
    (folder / "2.csv").write_text("fare\n2.5\ncheap\n")
    return [str(folder / "*.csv")]


def _schema_that_does_not_fit(folder):
    (folder / "t.csv").write_text("id\n1\nseven\n")
    (folder / "s.json").write_text('{"features": [{"name": "id", "type": "int64"}]}')
    return [str(folder / "t.csv"), "--schema", str(folder / "s.json")]


def _schema_of_an_unknown_type(folder):
    (folder / "t.csv").write_text("fare\n1\n")
    (folder / "s.json").write_text('{"features": [{"name": "fare", "type": "it64"}]}')
    return [str(folder / "t.csv"), "--schema", str(folder / "s.json")]


def _schema_with_a_wrong_default(folder):
    (folder / "t.csv").write_text("fare\n1\n")
    feature = '{"name": "fare", "type": "int64", "default": "x"}'
    (folder / "s.json").write_text(f'{{"features": [{feature}]}}')
    return [str(folder / "t.csv"), "--schema", str(folder / "s.json")]


def _schema_of_a_missing_column(folder):
    (folder / "t.csv").write_text("id\n1\n")
    (folder / "s.json").write_text('{"features": [{"name": "price", "type": "float"}]}')
    return [str(folder / "t.csv"), "--schema", str(folder / "s.json")]


def _doubled_header(folder):
    (folder / "t.csv").write_text("id,id\n1,2\n")
    return [str(folder / "t.csv")]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (_missing, 2, ["nope.csv", "no such file"]),
        (_empty_directory, 2, ["empty", "no "]),
        (_malformed_row, 1, ["bad.csv:3", "--max-rejects"]),
        (_truncated_parquet, 1, ["cut.parquet"]),
        (_conflict, 1, ["'fare'", "2.csv:3", "1.csv:2", "--types fare=string"]),
        (_schema_that_does_not_fit, 1, ["t.csv:3", "'seven'"]),
        (_schema_of_a_missing_column, 1, ["'price'"]),
        (_schema_of_an_unknown_type, 2, ["'it64'", "'int64'"]),
        (_schema_with_a_wrong_default, 2, ["'x'", "'fare'", "int64"]),
        (_doubled_header, 1, ["'id'", "--names"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_errors_are_clear(tmp_path, make, code, words):
    arguments = make(tmp_path)  # type: ignore[operator]
    out = tmp_path / "out"
    result = CliRunner().invoke(cli, ["write", *arguments[:1], str(out), *arguments[1:]])
    assert result.exit_code == code, result.stderr
    lines = result.stderr.strip().splitlines()
    assert lines[0].startswith("error: ")
    # Only rejects need more than one line.
    assert all(line.startswith("  ") for line in lines[1:]), result.stderr
    assert len(lines) == 1 or "rows cannot be written" in lines[0], result.stderr
    assert not [word for word in words if word not in result.stderr], result.stderr
    assert "Traceback" not in result.stderr
    assert not out.exists() or visible_names(out) == []
