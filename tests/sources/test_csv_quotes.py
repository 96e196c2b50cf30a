"""CSV: quotes that do not end where a field ends, and files in which quotes have no meaning."""

import csv

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import RejectedRows
from beam_tfrecord.sources.csv.source import Csv
from tests.helpers.effort import examples
from tests.helpers.reading import rows_and_rejects

TEXT = {"id": "string", "s": "string"}
CURE = 'correct it ("" stands for a quote inside quotes), or pass --quote none if quotes have no '

DIALECTS = [
    {},
    {"double_quote": False},
    {"escape": "\\"},
    {"delimiter": ";", "quote": "'", "escape": "\\", "double_quote": False},
    {"delimiter": "\t", "quote": None},
    {"comment": "x"},
    {"escape": "\\", "comment": ";"},
]

lines = st.lists(st.text('ab"", ', max_size=8).map("1,{}".format), max_size=12)
PIECES = [*",;'\"\\\t\r\n", ",", '"', "\n", "\r\n", "\r\n", "x", "xxxx", "\xe9", "\0"]
texts = st.lists(st.sampled_from(PIECES), max_size=200).map("".join)


def read_in_pieces(path, **options):
    """Return rows and rejects of a file, the same for pieces of any size."""
    found = []
    for chunk_bytes in (16, 100, 2**20):
        source = Csv(path, types=TEXT, chunk_bytes=chunk_bytes, **options)
        table, rejects = rows_and_rejects(source, batch_rows=5)
        places = [(one.address, one.message, one.value, one.lines) for one in rejects]
        found.append((table.to_pylist(), places))
    assert all(one == found[0] for one in found)
    return found[0]


@settings(max_examples=examples(150), deadline=None)
@given(texts, st.sampled_from(DIALECTS))
@example('a,"' + "x" * 90 + '"\r\n"b\n""",c\r\n', DIALECTS[0])
def test_any_text_has_the_same_rows_however_it_is_cut(tmp_path_factory, text, dialect):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(f"1{dialect.get('delimiter', ',')}2\n{text}".encode())
    read_in_pieces(path, header=False, names=list(TEXT), **dialect)


@settings(max_examples=examples(200), deadline=None)
@given(lines, st.sampled_from(["\n", "\r\n"]), st.booleans())
@example(['1,"open', "2,b", '3,"c"'], "\n", True)
@example(["1,a", '2,"open', "3,c", "4,d"], "\n", False)
def test_no_line_is_lost_without_a_word(tmp_path_factory, rows, ends, is_ended):
    text = "id,s\n" + ends.join(rows) + ends * (is_ended and bool(rows))
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(text.encode())
    rows_read, places = read_in_pieces(path)
    read = [[cell or "" for cell in row.values()] for row in rows_read]
    in_rows = sum(1 + "".join(row).count("\n") for row in read)
    assert in_rows + sum(lines for *_, lines in places) == len(rows)
    before, stopped = [], False
    with path.open(newline="") as file:
        try:
            before += csv.reader(file, strict=True)
        except csv.Error:
            stopped = True
    fitting = [row for row in before[1:] if len(row) == 2]
    assert read[: len(fitting)] == fitting
    assert stopped or read == fitting


@pytest.mark.parametrize(
    ("text", "rows", "message", "value"),
    [
        (
            '1,"open\n2,b\n3,"c"\n4,d\n',
            [("4", "d")],
            "the row in a.csv:2-4 has text behind a closing quote",
            '1,"open',
        ),
        ('1,"a" ,b\n', [], "the row in a.csv:2 has text behind a closing quote", '1,"a" ,b'),
        ('1,a\n3,"x\n5,6\n', [("1", "a")], "the row in a.csv:3-4 has a quote that never", '3,"x'),
    ],
)
def test_a_broken_row_is_a_reject_that_names_its_lines(write, text, rows, message, value):
    table, (reject,) = rows_and_rejects(Csv(write("id,s\n" + text), types=TEXT, chunk_bytes=16))
    assert [tuple(row.values()) for row in table.to_pylist()] == rows
    assert reject.message.startswith(message)
    assert CURE in reject.message
    assert reject.value == value


def test_the_budget_counts_lines(write, tmp_path):
    rows = [f"{number},x\n" for number in range(200)]
    rows[100] = '100,"x\n'
    path = write("id,s\n" + "".join(rows))
    with pytest.raises(RejectedRows, match=r"100 of 200 rows .*\n  100 rows: the row in a.csv:102"):
        bt.write(path, tmp_path / "out", max_rejects="49%")
    manifest = bt.write(path, tmp_path / "out", max_rejects=100)
    assert (manifest.examples, manifest.rejects["rows"]) == (100, 100)
    (reject,) = pq.read_table(tmp_path / "out" / "rejects").to_pylist()
    assert (reject["address"], reject["value"]) == ("a.csv:102-201", '100,"x')
    assert not bt.verify(tmp_path / "out").faults


@pytest.mark.parametrize("quote", ["none", None])
def test_quotes_may_have_no_meaning(write, tmp_path, quote):
    path = write('a,b\n1,2\n3,"x\n5,6\n')
    bt.write(path, tmp_path / "out", quote=quote)
    assert sorted(row["b"] for row in bt.load(tmp_path / "out").rows()) == ['"x', "2", "6"]
