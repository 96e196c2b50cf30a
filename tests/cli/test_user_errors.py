"""What people run into: a clear error, the right exit code, nothing published."""

import json
import os
import shlex

import pytest

from tests.helpers.cli_stand_ins import run
from tests.helpers.datasets import visible_names


def schema(**feature):
    return json.dumps({"features": [feature]})


OWN = ("--schema", "s.json")
# Files, what is read of them, the exit code, and what is said.
CASES = {
    "a row too long": ({"a.csv": "a,b\n1,2\n3,4,5\n"}, ["a.csv"], 1, ["a.csv:3", "--max-rejects"]),
    "rows that end in commas": ({"a.csv": "a\n1,\n2,\n"}, ["a.csv"], 1, ["--names a,b,end --col"]),
    "no byte order mark": (
        {"a.csv": "a\0"},
        ["a.csv", "--encoding", "utf-16"],
        1,
        ["utf-16-le or"],
    ),
    "a condition of databases": (
        {"a.csv": "a\n1\n"},
        ["a.csv", "--where", "a>1"],
        2,
        ["--filter?"],
    ),
    "MySQL without Java": (
        {},
        ["mysql://host/db", "--table", "t"],
        2,
        ["pass jdbc:mariadb://host"],
    ),
    "types that differ": (
        {"1.csv": "fare\n1.5\n", "2.csv": "fare\n2.5\ncheap\n"},
        ["*.csv"],
        1,
        ["'fare'", "2.csv:3", "1.csv", "--types fare=string"],
    ),
    "a schema that does not fit": (
        {"t.csv": "id\n1\nseven\n", "s.json": schema(name="id", type="int64")},
        ["t.csv", *OWN],
        1,
        ["t.csv:3", "'seven'"],
    ),
    "a schema of another column": (
        {"t.csv": "id\n1\n", "s.json": schema(name="price", type="float")},
        ["t.csv", *OWN],
        1,
        ["'price'"],
    ),
}


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("case", CASES)
def test_errors_are_clear(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    files, (path, *options), code, words = CASES[case]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    ran = run("write", path, "out", *options)
    assert ran.exit_code == code, ran.stderr
    first, *rest = ran.stderr.strip().splitlines()
    assert first.startswith("error: ")
    # Only rejects need more than one line.
    assert not rest or "rows cannot be written" in first, ran.stderr
    assert all(line.startswith("  ") for line in rest), ran.stderr
    assert not [word for word in words if word not in ran.stderr], ran.stderr
    assert not (tmp_path / "out").exists() or visible_names(tmp_path / "out") == []


@pytest.mark.parametrize("kind", [(), ("--from", "csv"), ("--from", "images")])
@pytest.mark.parametrize("named", ["my photos.zip", ".", "*.zip", "*"])
def test_a_zip_archive_is_refused_with_the_command_that_unpacks_it(
    tmp_path, monkeypatch, named, kind
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my photos.zip").write_bytes(b"PK\3\4")
    ran = run("write", named, "/none/out", *kind)
    assert ran.exit_code == 2
    first, *others = ran.stderr.splitlines()[::-1]
    assert first.startswith("error: ")
    assert not [line for line in others if not line.startswith("warning: skipped 1 file")]
    words = shlex.split(first.partition("archive: unpack it first: ")[2])
    assert words[::2] == ["unzip", "-d"]
    assert [os.path.abspath(path) for path in words[1::2]] == [
        str(tmp_path / "my photos.zip"),
        str(tmp_path / "my photos"),
    ]
