import dataclasses
import itertools
import json

import pyarrow.parquet as pq
import pytest
import xxhash

from beam_tfrecord.errors import RejectedRows, UsageError
from beam_tfrecord.format import rejects as module
from beam_tfrecord.format.rejects import (
    RejectBudget,
    SavedRejects,
    join_rejects,
    parse_budget,
    rejected,
    rejected_rows,
    rejects_hash,
    write_rejects,
)
from beam_tfrecord.rows.batch import Reject

REJECTS = [
    Reject("a.csv", 2, "x", "bad-value", "m"),
    Reject("a.csv", 10, "x", "bad-value", "m"),
    Reject("b.csv", 1, "", "too-large", "m", "v1"),
    Reject("b.csv", 1, "", "too-large", "m", "v2"),
    Reject("b.csv", 1, "y", "bad-value", "m"),
]


@pytest.mark.parametrize("text", ["", "-1", -1, "x", "1.5", "101%", "-1%", "nan%", "%", "ANY"])
def test_other_budgets_are_refused(text):
    with pytest.raises(UsageError, match=r"cannot read reject budget .*: write 10, 0\.5% or any"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("budget", "rejects", "rows", "is_allowed"),
    [
        ("0", 0, 10, True),
        ("0", 1, 10, False),
        ("3", 4, 10**9, False),
        ("any", 10**9, 10**9, True),
        ("10%", 1, 10, True),
        ("10%", 2, 19, False),
    ],
)
def test_budgets(budget, rejects, rows, is_allowed):
    assert parse_budget(budget).allows(rejects, rows) is is_allowed
    assert str(parse_budget(budget)) == budget


def test_rejects_are_in_order_of_origin_whoever_wrote_them(tmp_path):
    for number, order in enumerate(itertools.permutations(REJECTS)):
        if number % 20:
            continue
        paths = [str(tmp_path / f"{number}-{part}") for part in "ab"]
        write_rejects(paths[0], order[:2])
        write_rejects(paths[1], order[2:])
        assert [Reject(**row) for row in rejected_rows(paths)] == REJECTS


def test_many_files_of_many_rejects_are_joined(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TABLE_ROWS", 2)
    paths = []
    for number in range(11):
        paths.append(str(tmp_path / str(number)))
        rows = range(number, 55, 11)
        write_rejects(paths[-1], [Reject("u", row, "", "bad-value", "m") for row in rows])
    assert [row["row"] for row in rejected_rows(paths)] == list(range(55))


def test_the_hash_is_that_of_the_json_of_all_rows(tmp_path):
    write_rejects(str(tmp_path / "a"), REJECTS)
    saved = join_rejects([str(tmp_path / "a")], str(tmp_path / "r.parquet"))
    table = pq.read_table(tmp_path / "r.parquet")
    text = json.dumps(table.to_pylist(), ensure_ascii=False, sort_keys=True)
    assert saved == SavedRejects(
        5,
        xxhash.xxh64_hexdigest(text.encode()),
        xxhash.xxh64_hexdigest((tmp_path / "r.parquet").read_bytes()),
    )
    assert rejects_hash(table) == saved.xxh64


def error_of(*rejects, budget=RejectBudget()):  # noqa: B008
    error = rejected(budget, 50_000, map(dataclasses.asdict, rejects), "out/a b/rejects.parquet")
    assert isinstance(error, RejectedRows)
    return error.message.splitlines()


def misfit(line, value, column="x"):
    where = f"a.csv:{line}"
    message = f"column {column!r} is {value!r} in {where}: correct it"
    return Reject("a.csv", line - 2, column, "bad-value", message, value, where)


def test_the_error_shows_each_cause_once():
    rejects = [
        misfit(2, "n/a", "y"),
        *(misfit(3 + i, f"{i} m") for i in range(1230)),
        Reject("", -1, "", "too-large", "the example would be larger"),
        Reject("", -1, "", "too-large", "the example would be larger"),
        Reject("", -1, "", "other", "something else"),
    ]
    assert error_of(*rejects, budget=RejectBudget(percent=0.5)) == [
        "1,234 of 50,000 rows cannot be written (allowed: 0.5%):",
        "  1,230 rows: column 'x' is '0 m' in a.csv:3: correct it",
        "    also a.csv:4, a.csv:5 and 1,227 more",
        "  2 rows: the example would be larger",
        "  1 row: column 'y' is 'n/a' in a.csv:2: correct it",
        "  1 row for other reasons",
        "  correct the rows, or leave these rows out by --max-rejects; to list them: "
        "beam-tfrecord head 'out/a b/rejects.parquet'",
    ]


def test_the_error_says_if_the_function_is_at_fault():
    failed = Reject(
        "u", 0, "", "map-error", "a.csv:2: KeyError: 'x' (at f.py:1 in f)", "", "a.csv:2"
    )
    lines = error_of(failed)
    assert lines[0] == "1 of 50,000 rows made the map function fail (allowed: 0):"
    assert lines[1] == f"  1 row: {failed.message}"
    assert lines[2].startswith("  correct the function, or leave")
    assert error_of(failed, misfit(3, "?"))[0] == "2 of 50,000 rows cannot be written (allowed: 0):"


def test_the_error_stays_small_whatever_the_messages_are(monkeypatch):
    monkeypatch.setattr(module, "MAX_CAUSES", 3)
    rejects = [Reject("u", i, "", "bad-value", "x" * i, "", f"a.csv:{i}") for i in range(10)]
    lines = error_of(*rejects)
    assert [line for line in lines if line.startswith("  7 rows: ")] != []
    assert lines[-2] == "  1 row for other reasons"
