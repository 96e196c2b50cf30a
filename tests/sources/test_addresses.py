"""Where a row is: one form in all messages, `file:line` for text and `file row N` for others."""

from __future__ import annotations

import gzip

import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt


def addresses(batches):
    return [
        batch.origin.address_of(int(row))
        for batch in batches
        for row in batch.origin.row_numbers(batch.num_rows)
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "end"])
@pytest.mark.parametrize("rows", [1, 3, 50])
def test_rows_of_text_are_named_by_line(tmp_path, end, last, rows):
    lines = ["id", *map(str, range(rows))]
    text = end.join(lines) + (end if last else "")
    (tmp_path / "a.csv").write_bytes(text.encode())
    expected = [f"a.csv:{line}" for line in range(2, rows + 2)]
    for batch_rows in (1, 7, 100):
        reader = bt.ReadFromCsv(tmp_path / "a.csv", batch_rows=batch_rows)
        assert addresses(reader.batches()) == expected
    with gzip.open(tmp_path / "b.csv.gz", "wb") as file:
        file.write(text.encode())
    expected = [f"b.csv.gz row {row}" for row in range(rows)]
    assert addresses(bt.ReadFromCsv(tmp_path / "b.csv.gz").batches()) == expected


@pytest.mark.parametrize("batch_rows", [1, 2, 100])
def test_rows_that_are_not_lines_are_counted_from_0(tmp_path, batch_rows):
    (tmp_path / "a.csv").write_text('id,note\n1,"one\ntwo"\n2,three\n\n3,four')
    reader = bt.ReadFromCsv(tmp_path / "a.csv", batch_rows=batch_rows)
    assert addresses(reader.batches()) == ["a.csv row 0", "a.csv row 1", "a.csv row 2"]
    # A blank line and a last line without its end do not cancel out.
    (tmp_path / "b.csv").write_text("id,note\n1,x\n\n2,y")
    reader = bt.ReadFromCsv(tmp_path / "b.csv", batch_rows=batch_rows)
    assert addresses(reader.batches()) == ["b.csv row 0", "b.csv row 1"]
    # In one column, a blank line is a row.
    (tmp_path / "c.csv").write_text("id\n1\n\n2")
    reader = bt.ReadFromCsv(tmp_path / "c.csv", batch_rows=batch_rows)
    assert addresses(reader.batches()) == ["c.csv:2", "c.csv:3", "c.csv:4"]


def fails_on_three(row: dict) -> dict:
    if row["id"] == 3:
        raise ValueError("three")
    return row


def test_rejects_of_all_steps_have_the_same_form(tmp_path):
    (tmp_path / "a.csv").write_text("id,part\n1,train\n2,\n3,test\nx,test\n")
    types = {"types": {"id": "int64"}}
    out = tmp_path / "out"
    bt.write(
        tmp_path / "a.csv",
        out,
        map=fails_on_three,
        split_column="part",
        max_rejects="any",
        source_options=types,
    )
    listed = pq.read_table(out / "rejects" / "rejects-00000.parquet").to_pylist()
    messages = sorted(row["message"].partition(" (at")[0] for row in listed)
    assert sorted(row["address"] for row in listed) == ["a.csv:3", "a.csv:4", "a.csv:5"]
    assert messages == [
        "a.csv:3: split column 'part' has no value",
        "a.csv:4: ValueError: three",
        "column 'id' is 'x' in a.csv:5, which is not int64: correct it, or choose another type by "
        "--types or --schema",
    ]
