"""CSV: quotes that do not end where a field ends, and files in which quotes have no meaning."""

import csv

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import RejectedRows
from beam_tfrecord.sources.csv import read as csv_read
from beam_tfrecord.sources.csv.source import Csv
from tests.helpers.effort import examples
from tests.helpers.reading import rows_and_rejects, units_of

TEXT = {"id": "string", "s": "string"}
CURE = 'correct it ("" stands for a quote inside quotes), or pass --quote none if quotes have no '

DIALECTS = [
    {},
    {"double_quote": False},
    {"escape": "\\"},
    {"delimiter": ";", "quote": "'", "escape": "\\", "double_quote": False},
    {"delimiter": "\t", "quote": None},
    {"comment": "#"},
    {"escape": "\\", "comment": "#"},
]
# D and Q stand for the delimiter and the quote of a dialect.
PIECES = [*"DDQQ\\#\r\n\nx", "QQ", "\r\n", "\r\n", "xxxx", "\xe9", "\0"]

lines = st.lists(st.text('ab"", ', max_size=8).map("1,{}".format), max_size=12)
pieces = st.sampled_from(PIECES)
# Short ones, and some in which lines cross the edges of blocks and chunks.
texts = (st.lists(pieces) | st.lists(pieces, min_size=100, max_size=200)).map("".join)


def read_in_pieces(path, columns=TEXT, **options):
    """Return rows and rejects of a file, the same for pieces of any size."""
    found = []
    for chunk_bytes, block_bytes in ((16, 2**20), (100, 7), (2**20, 2**20)):
        types = dict.fromkeys(columns, "string")
        source = Csv(path, types=types, chunk_bytes=chunk_bytes, **options)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_read, "BLOCK_BYTES", block_bytes)
            table, rejects = rows_and_rejects(source, batch_rows=5)
        places = [(one.address, one.message, one.value, one.lines) for one in rejects]
        rows = sum(unit.rows for unit in units_of(source))
        found.append((table.to_pylist(), places, rows))
    assert all(one == found[0] for one in found)
    return found[0][:2]


@settings(max_examples=examples(400, 30), deadline=None)
@given(texts, st.sampled_from(DIALECTS), st.sampled_from([["id"], ["id", "s"]]))
@example("aDQ" + "x" * 90 + "Q\r\nQb\nQQQDc\r\n", DIALECTS[0], ["id", "s"])
@example("x" * 60 + "\r\n" + "\n" * 50 + "1D2", DIALECTS[0], ["id"])
def test_any_text_has_the_same_rows_however_it_is_cut(tmp_path_factory, text, dialect, columns):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    marks = {"D": dialect.get("delimiter", ","), "Q": dialect.get("quote") or '"'}
    path.write_bytes(f"{'D'.join(columns)}\n{text}".translate(str.maketrans(marks)).encode())
    read_in_pieces(path, columns, **dialect)


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


@pytest.mark.slow
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
