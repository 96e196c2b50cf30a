from __future__ import annotations

import itertools
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import xxhash

from beam_tfrecord import rejects as module
from beam_tfrecord.batch import Reject
from beam_tfrecord.errors import RejectedRows, UsageError
from beam_tfrecord.rejects import (
    RejectBudget,
    SavedRejects,
    join_rejects,
    merge_rejects,
    parse_budget,
    rejected,
    rejects_hash,
    write_rejects,
)

REJECTS = [
    Reject("a.csv", 2, "x", "bad-value", "m"),
    Reject("a.csv", 10, "x", "bad-value", "m"),
    Reject("b.csv", 1, "", "too-large", "m", "v1"),
    Reject("b.csv", 1, "", "too-large", "m", "v2"),
    Reject("b.csv", 1, "y", "bad-value", "m"),
]


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        (0, RejectBudget(0)),
        ("10", RejectBudget(10)),
        ("any", RejectBudget(None)),
        ("0.5%", RejectBudget(percent=0.5)),
        ("0%", RejectBudget(percent=0.0)),
        ("100 %", RejectBudget(percent=100.0)),
    ],
)
def test_budgets_are_parsed(text: int | str, budget: RejectBudget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["", "-1", -1, "x", "1.5", "101%", "-1%", "nan%", "%", "ANY"])
def test_other_budgets_are_refused(text: int | str) -> None:
    with pytest.raises(UsageError, match=r"cannot read reject budget .*: write 10, 0\.5% or any"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("budget", "rejects", "rows", "is_allowed"),
    [
        ("0", 0, 10, True),
        ("0", 1, 10, False),
        ("3", 3, 3, True),
        ("3", 4, 10**9, False),
        ("any", 10**9, 10**9, True),
        ("10%", 1, 10, True),
        ("10%", 2, 19, False),
        ("10%", 0, 0, True),
        ("0%", 1, 10**9, False),
        ("100%", 7, 7, True),
    ],
)
def test_budgets(budget: str, rejects: int, rows: int, is_allowed: bool) -> None:
    assert parse_budget(budget).allows(rejects, rows) is is_allowed
    assert str(parse_budget(budget)) == budget


def test_rejects_are_in_order_of_origin_whoever_wrote_them(tmp_path: Path) -> None:
    for number, order in enumerate(itertools.permutations(REJECTS)):
        if number % 20:
            continue
        paths = [str(tmp_path / f"{number}-{part}") for part in "ab"]
        write_rejects(paths[0], order[:2])
        write_rejects(paths[1], order[2:])
        assert [Reject(**row) for row in merge_rejects(paths)] == REJECTS


def test_more_files_than_may_be_open_are_merged_in_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGED_FILES", 3)
    monkeypatch.setattr(module, "MERGED_ROWS", 2)
    paths = []
    for number in range(11):
        paths.append(str(tmp_path / str(number)))
        rows = range(number, 55, 11)
        write_rejects(paths[-1], [Reject("u", row, "", "bad-value", "m") for row in rows])
    assert [row["row"] for row in merge_rejects(paths)] == list(range(55))


def test_no_rejects_leave_no_file(tmp_path: Path) -> None:
    saved = join_rejects([], str(tmp_path / "r.parquet"))
    # The hash is that of the two bytes "[]".
    assert saved == SavedRejects(0, xxhash.xxh64_hexdigest(b"[]"), "")
    assert list(tmp_path.iterdir()) == []


def test_the_hash_is_that_of_the_json_of_all_rows(tmp_path: Path) -> None:
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


def test_rejects_are_saved_as_parquet(tmp_path: Path) -> None:
    write_rejects(str(tmp_path / "a"), REJECTS[:1])
    join_rejects([str(tmp_path / "a")], str(tmp_path / "r.parquet"))
    assert pq.read_table(tmp_path / "r.parquet").to_pylist() == [
        {
            "unit": "a.csv",
            "row": 2,
            "column": "x",
            "code": "bad-value",
            "message": "m",
            "value": "",
        }
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "r.parquet"]


def test_the_error_shows_the_first_three() -> None:
    sample = [Reject("u", i, "x", "bad-value", f"line {i} is bad") for i in range(5)]
    error = rejected(RejectBudget(percent=0.5), 1234, 50_000, sample, "out/.tmp-0/rejects.parquet")
    assert isinstance(error, RejectedRows)
    assert str(error) == (
        "1,234 of 50,000 rows cannot be written (allowed: 0.5%): line 0 is bad; line 1 is bad; "
        "line 2 is bad and 1,231 more; fix the data, or allow them with --max-rejects; "
        "all are listed in out/.tmp-0/rejects.parquet"
    )
    assert "more" not in str(rejected(RejectBudget(), 3, 9, sample[:3], "x"))
