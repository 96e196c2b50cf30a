"""The CSV source: cutting, types, values, rejects; and damaged input."""

import csv
import datetime
import decimal
import io
import os
import shutil
import subprocess

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import SchemaConflict, UsageError
from beam_tfrecord.sources.csv.source import Csv
from tests.helpers.effort import examples
from tests.helpers.reading import column, rows_and_rejects


@pytest.mark.parametrize(
    ("cells", "arrow", "values"),
    [
        (["x", "NA", ""], "string", ["x", "NA", None]),
        (['"1"', '""', "3"], "int64", [1, None, 3]),
        (['"x"', '""', ""], "string", ["x", "", None]),
        (["9007199254740993", "2.5"], "string", ["9007199254740993", "2.5"]),
        (["9223372036854775808", "1"], "string", ["9223372036854775808", "1"]),
        (["007", "12"], "string", ["007", "12"]),
        (["True", "FALSE", ""], "bool", [True, False, None]),
        (["true", "1"], "string", ["true", "1"]),
        (["2024-02-29", ""], "date32[day]", [datetime.date(2024, 2, 29), None]),
        (
            ["2024-02-29", "2024-02-29T01:02:03.000004"],
            "timestamp[us]",
            [datetime.datetime(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3, 4)],
        ),
        (
            ["2024-02-29T01:00:00Z", "2024-02-29T01:00:00+02:00"],
            "timestamp[us, tz=UTC]",
            [
                datetime.datetime(2024, 2, 29, 1, tzinfo=datetime.UTC),
                datetime.datetime(2024, 2, 28, 23, tzinfo=datetime.UTC),
            ],
        ),
        (
            ["2024-02-29 01:00", "2024-02-29 01:00Z"],
            "string",
            ["2024-02-29 01:00", "2024-02-29 01:00Z"],
        ),
        ([" x", "2 "], "string", [" x", "2 "]),
        (['2"', '5" disk'], "string", ['2"', '5" disk']),
        (['""', "", '" "'], "string", ["", None, " "]),
        (["", '""', "NA"], "string", [None, "", "NA"]),
        (['""', "5", "NA"], "int64", [None, 5, None]),
    ],
)
def test_types_and_values(write, cells, arrow, values):
    path = write("a,b\n" + "".join(f"{cell},z\n" for cell in cells))
    for chunk_bytes in (16, 2**20):
        assert column(Csv(path, chunk_bytes=chunk_bytes)) == (arrow, values)


def test_a_file_of_empty_texts_agrees_with_any_other(tmp_path):
    (tmp_path / "a.csv").write_text('a,b,c\n"",5,""\n')
    (tmp_path / "b.csv").write_text('a,b,c\nx,"",""\n')
    schema = Csv(str(tmp_path)).schema()
    assert [str(field.type) for field in schema] == ["string", "int64", "string"]
    (tmp_path / "c.csv").write_text('a,b,c\n"",2024-01-01,""\n')
    with pytest.raises(
        SchemaConflict, match=r"'b' is int64 in a.csv but text because of '2024-01-01' in c"
    ):
        Csv(str(tmp_path)).schema()


@pytest.mark.parametrize(("delimiter", "shown"), [(";", ";"), ("\t", r"\t"), ("|", "|")])
def test_a_likely_wrong_delimiter_is_refused_unless_one_is_passed(write, delimiter, shown):
    path = write(f"a{delimiter}b\n1{delimiter}2\n".encode())
    with pytest.raises(UsageError, match="the only column is named 'a") as raised:
        Csv(path).schema()
    assert f"pass --delimiter '{shown}' to divide it" in raised.value.message
    assert Csv(path, delimiter=delimiter).schema().names == ["a", "b"]
    assert Csv(path, delimiter=",").schema().names == [f"a{delimiter}b"]
    assert Csv(write(b"a\n1\n", "b.csv")).schema().names == ["a"]


@pytest.mark.parametrize(
    ("cells", "remark"),
    [
        (["1", "2.5", "?"], "text because of '?' in a.csv:4: pass --null '?' if it means missing"),
        (["", "1", "n.a.", "?"], "text because of 'n.a.' in a.csv:4: pass --null 'n.a.' if it"),
        (["true", "FALSE", "-", "NA"], "text because of '-' in a.csv:4: pass --null '-' if it"),
        (["2024-01-01", "soon"], "text because of 'soon' in a.csv:3: pass --null 'soon' if it"),
        (["1", "2", "1,5"], "text because of '1;5' in a.csv:4: correct it, or pass --types"),
        (["1", "2.5", "007", "x"], "text because of '007' in a.csv:4: correct it, or pass --types"),
        (["1", "2024-01-01"], "text because of '2024-01-01' in a.csv:3: correct it, or pass --ty"),
        (["0.5", "9007199254740993"], "text because of '9007199254740993' in a.csv:3: correct it"),
        (["x", "NA", "null"], "'NA' in a.csv:3 is text: if it means missing, pass --null 'NA'"),
        # Ordinary text begins with text.
        (["x", "1", "2"], None),
        (["x", "NAN", "y", ""], None),
    ],
)
def test_a_value_that_makes_a_column_text_is_named(write, cells, remark):
    path = write("a,b\n" + "".join(f"{cell.replace(',', ';')},z\n" for cell in cells))
    for chunk_bytes in (16, 2**20):
        found = Csv(path, chunk_bytes=chunk_bytes).inferred()[1]
        assert [one.startswith(f"a: {remark}") for one in found] == [True] * (remark is not None)
    assert Csv(path, types={"a": "text"}).inferred()[1] == []


def test_a_remark_names_the_first_value_of_all_files(write, tmp_path):
    for index, other in enumerate(["3", "4", "true", "false"]):
        write("my a,b\n1,x\n2,y\n" + "9,\n" * index + f"{other},z\n", f"{index}.csv")
    source = Csv(tmp_path, chunk_bytes=16)
    found = [source.infer(unit) for unit in source.all_units(source.all_scans())]
    schema = pa.schema({"my a": pa.string()})
    expected = [
        "my a: text because of 'true' in 2.csv:6: correct it, or pass --types 'my a=string'"
    ]
    assert source.remarks(found, schema) == expected
    assert source.remarks(found[::-1], schema) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    "word", ["?", "n\x01a", "\x7f", "\xa0", "a'\tb", "\u200bx", "- -", "\x01é"]
)
def test_what_is_remarked_on_is_what_a_shell_gives(write, word):
    path = write("a,b\n" + "2.5,z\n" * 9 + f"{word},z\n")
    (remark,) = Csv(path).inferred()[1]
    cure = remark.partition("pass --null ")[2].partition(" if it means missing")[0]
    assert cure.isprintable()
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    told = subprocess.run(
        ["bash", "-c", f"printf %s {cure}"], env=environment, capture_output=True, check=True
    )
    assert told.stdout.decode() == word
    assert Csv(path, null_words=[word]).inferred()[1] == []


cells = st.one_of(
    st.none(),
    st.text(" ,;\"'|\\\r\n\tab\u00e9", max_size=6),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.floats().map(repr),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(st.tuples(cells, cells, cells), max_size=12),
    delimiter=st.sampled_from(",;|\t"),
    quote=st.sampled_from("\"'"),
    style=st.sampled_from(["double", "escape"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    chunk_bytes=st.integers(16, 64),
    batch_rows=st.integers(1, 5),
)
@pytest.mark.slow
def test_units_together_give_the_rows_of_the_file(
    tmp_path_factory, rows, delimiter, quote, style, quoting, line_end, chunk_bytes, batch_rows
):
    """Python's csv module writes and reads; tiny chunks must give the same rows as it does."""
    dialect = {
        "delimiter": delimiter,
        "quotechar": quote,
        "doublequote": style == "double",
        "escapechar": None if style == "double" else "\\",
    }
    if quoting == csv.QUOTE_MINIMAL:
        line_end = "\r\n"  # the writer quotes only the line ends it writes itself
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=line_end, quoting=quoting, **dialect)
    writer.writerows([("a", "b", "c"), *rows])
    text = buffer.getvalue()
    expected = list(csv.reader(io.StringIO(text, newline=""), **dialect))[1:]
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text.encode())
    source = Csv(
        path,
        delimiter=delimiter,
        quote=quote,
        escape=dialect["escapechar"],
        double_quote=style == "double",
        types=dict.fromkeys("abc", "text"),
        chunk_bytes=chunk_bytes,
    )
    units = source.all_units(source.all_scans())
    table, rejects = rows_and_rejects(source, batch_rows=batch_rows)
    assert rejects == []
    assert [[cell or "" for cell in row.values()] for row in table.to_pylist()] == expected
    for unit in units:
        batches = list(source.read(unit, table.schema, batch_rows=batch_rows))
        assert unit.rows == sum(batch.num_rows for batch in batches)
        assert [batch.origin.rows for batch in batches] == [
            i * batch_rows for i in range(len(batches))
        ]


def test_rejects_name_unit_row_and_line(write):
    path = write('a,b\n1,x\n\nbad,"y\nz"\n3\n4,w\n5,6,7\n')
    source = Csv(path, types={"a": "int64", "b": "text"})
    table, rejects = rows_and_rejects(source)
    assert table.to_pydict() == {"a": [1, 4], "b": ["x", "w"]}
    (batch,) = source.read(source.all_units(source.all_scans())[0], table.schema)
    assert batch.origin.rows.tolist() == [0, 3]
    assert [(r.unit, r.row, r.column, r.code, r.value) for r in rejects] == [
        ("a.csv", 1, "a", "bad-value", "bad"),
        ("a.csv", 2, "", "bad-row", "3"),
        ("a.csv", 4, "", "bad-row", "5,6,7"),
    ]
    assert "a.csv:4" in rejects[0].message
    assert rejects[1].message.startswith("the row in a.csv:6 has 1 field but the first line has 2")
    assert "a.csv:8 has 3 fields" in rejects[2].message


@pytest.mark.parametrize(
    ("arrow", "good", "bad"),
    [
        ("uint8", "255", "256"),
        ("float32", "1e38", "1e39"),
        ("timestamp[s]", "2024-01-01T00:00:01.000", "2024-01-01T00:00:01.5"),
        ("timestamp[us, tz=UTC]", "2024-01-01T00:00:01Z", "2024-01-01T00:00:01"),
        ("timestamp[ns]", "2262-04-11T23:47:16.854775807", "2262-04-11T23:47:16.854775808"),
        ("date32", "2024-01-01", "2024-01-01T00:00"),
        ("bool", "1", "2"),
        ("decimal128(5, 2)", "123.45", "123.456"),
        ("time64[us]", "12:30:15.000001", "12:30:15.0000001"),
        ("null", "NA", "x"),
        ("text", "x", b"\xff"),
        ("text", "x", b"a\0b"),
    ],
)
def test_a_value_that_does_not_fit_is_rejected(write, arrow, good, bad):
    bad = bad if isinstance(bad, bytes) else bad.encode()
    path = write(b"k,a\n1," + good.encode() + b"\n\n2," + bad + b"\n3," + good.encode() + b"\n")
    types = {"a": pa.date32() if arrow == "date32" else arrow}
    table, rejects = rows_and_rejects(Csv(path, types=types))
    assert table["k"].to_pylist() == [1, 3]
    assert [(r.row, r.column, r.code) for r in rejects] == [(1, "a", "bad-value")]
    assert rejects[0].address == "a.csv:4"
    # A byte that is not UTF-8 is shown with one backslash.
    shown = bad.decode("utf-8", "backslashreplace").replace("\0", r"\x00")
    assert f"column 'a' is '{shown}' in a.csv:4" in rejects[0].message


def test_types_the_kernel_does_not_know(write):
    path = write("d,t,f,s\n1.50,12:30,ab,x\n,NA,,x\n")
    types = {
        "d": pa.decimal128(5, 2),
        "t": pa.time32("s"),
        "f": pa.binary(2),
        "s": pa.dictionary(pa.int32(), pa.string()),
    }
    table, rejects = rows_and_rejects(Csv(path, types=types))
    assert not rejects
    assert table.schema.types == list(types.values())
    assert table.to_pylist() == [
        {"d": decimal.Decimal("1.50"), "t": datetime.time(12, 30), "f": b"ab", "s": "x"},
        {"d": None, "t": None, "f": None, "s": "x"},
    ]
    with pytest.raises(UsageError, match="column 's' cannot be read from csv as list"):
        rows_and_rejects(Csv(path, types={"s": pa.list_(pa.int64())}))
    with pytest.raises(UsageError, match="column 's' cannot be read from csv as float16: "):
        rows_and_rejects(Csv(path, types={"s": "float16"}))
    with pytest.raises(UsageError, match="column 'd' cannot be read from csv as decimal128"):
        rows_and_rejects(Csv(path, types={"d": pa.decimal128(5, -2)}))
