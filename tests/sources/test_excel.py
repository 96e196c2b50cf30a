"""Excel workbooks: the values that pandas finds, and refusals by cell where there is no value."""

import datetime
import fractions
import re
import xml.sax.saxutils
import zipfile

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.sources import excel as excel_cells
from beam_tfrecord.sources.choose import make_source
from tests.helpers.effort import examples
from tests.helpers.reading import messages_of, rows_at

DAY = datetime.date(2024, 2, 29)
TIME = datetime.datetime(2024, 2, 29, 12, 30, 15)


def book(path, **sheets):
    """Write a workbook; `_hidden` sheets begin with that word."""
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name)
        sheet.sheet_state = "hidden" if name.startswith("hidden") else "visible"
        for row in rows:
            sheet.append(row)
    made.save(path)
    return str(path)


HEADER = ["id", "fare", "name", "paid", "day", "at", "clock", "took"]
ROWS = [
    [1, 2.5, "a", True, DAY, TIME, datetime.time(1, 2, 3), datetime.timedelta(hours=30)],
    [2, 3, "", None, DAY, DAY, None, None],
    [None, None, " b\n", False, None, None, datetime.time(), datetime.timedelta(0)],
]


def test_values_have_the_types_of_all_rows(tmp_path):
    path = book(tmp_path / "a.xlsx", trips=[HEADER, *ROWS], hidden=[["x"]])
    schema = make_source(path).schema()
    assert [field.type for field in schema] == [
        *(pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us")),
        *(pa.time64("us"), pa.duration("us")),
    ]
    assert not schema.field("name").nullable or None in [row["name"] for row in rows_at(path)]
    first, second, third = rows_at(path)
    assert list(first.values()) == ROWS[0]
    assert (second["fare"], second["at"]) == (3.0, datetime.datetime(2024, 2, 29))
    assert (third["id"], third["name"], third["paid"]) == (None, " b\n", False)


def test_one_of_several_sheets_is_named(tmp_path):
    path = book(tmp_path / "a.xlsx", one=[["x"], [1]], two=[["x"], [2]], hidden=[["x"], [3]])
    with pytest.raises(UsageError, match="has 2 visible sheets: pass --sheet, one of one, two"):
        rows_at(path)
    for number, name in enumerate(("one", "two", "hidden"), start=1):
        assert rows_at(path, sheet=name) == [{"x": number}]
    with pytest.raises(UsageError, match="no sheet 'three'"):
        rows_at(path, sheet="three")


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PARTS = {
    "[Content_Types].xml": """<Types xmlns="http://schemas.openxmlformats.org/package/2006/\
content-types"><Override PartName="/xl/workbook.xml" ContentType="application/vnd.\
openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override \
PartName="/xl/sharedStrings.xml" ContentType="application/vnd.openxmlformats-officedocument.\
spreadsheetml.sharedStrings+xml"/></Types>""",
    "xl/workbook.xml": f"""<workbook xmlns="{MAIN}" xmlns:r="{RELATIONS}"><sheets><sheet name="s" \
sheetId="1" r:id="rId1"/></sheets></workbook>""",
    "xl/_rels/workbook.xml.rels": f"""<Relationships xmlns="http://schemas.openxmlformats.org/\
package/2006/relationships"><Relationship Id="rId1" Type="{RELATIONS}/worksheet" \
Target="worksheets/sheet1.xml"/></Relationships>""",
    # Formats of numbers, dates with times, and spans.
    "xl/styles.xml": f"""<styleSheet xmlns="{MAIN}"><cellXfs><xf numFmtId="0"/><xf numFmtId="22"/>\
<xf numFmtId="46"/></cellXfs></styleSheet>""",
}


def days(value):
    """Return the number that Excel stores for a moment, a time of day or a span."""
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date(1899, 12, 30), value)
    if isinstance(value, datetime.datetime):
        value -= datetime.datetime(1899, 12, 30)
    return float(fractions.Fraction(value // datetime.timedelta(microseconds=1), 86_400_000_000))


def in_xml(text):
    """Return text with the escapes of ECMA-376, part 1, 22.9.2.19."""
    text = re.sub("_(?=x[0-9A-Fa-f]{4}_)", "_x005F_", text)
    text = re.sub("[\x00-\x08\x0b-\x1f]", lambda match: f"_x{ord(match[0]):04X}_", text)
    return xml.sax.saxutils.escape(text)


def written_cells(path, values, digits):
    """Write a workbook of one column `x`, whose numbers have so many digits."""
    texts, cells = ["x"], ['<c t="s"><v>0</v></c>']
    for number, value in enumerate(values):
        if isinstance(value, str) and number % 2:
            cells.append(f'<c t="inlineStr"><is><t>{in_xml(value)}</t></is></c>')
        elif isinstance(value, str):
            cells.append(f'<c t="s"><v>{len(texts)}</v></c>')
            texts.append(value)
        elif isinstance(value, int):
            cells.append(f"<c><v>{value:.{digits}g}</v></c>")
        else:
            style = 2 if isinstance(value, datetime.timedelta) else 1
            cells.append(f'<c s="{style}"><v>{days(value):.{digits}g}</v></c>')
    rows = "".join(f"<row>{cell}</row>" for cell in cells)
    items = "".join(f"<si><t>{in_xml(text)}</t></si>" for text in texts)
    sheet = f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'
    parts = PARTS | {
        "xl/worksheets/sheet1.xml": sheet,
        "xl/sharedStrings.xml": f'<sst xmlns="{MAIN}">{items}</sst>',
    }
    with zipfile.ZipFile(path, "w") as book:
        for name, content in parts.items():
            book.writestr(name, content)
    return str(path)


# Later than 2079 a double has no microseconds.
MOMENTS = st.datetimes(datetime.datetime(1900, 3, 2), datetime.datetime(2079, 1, 1))
SPANS = st.timedeltas(datetime.timedelta(), datetime.timedelta(days=40_000))
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"))
TEXTS |= st.lists(st.sampled_from(["_x000D_", "x005F_", "_", "\r\n", "a"])).map("".join)
KINDS = [SPANS, st.times(), TEXTS.filter(bool), st.integers(-(2**53), 2**53)]


LISTS = [st.lists(kind, min_size=1, max_size=20) for kind in KINDS]
# Midnights alone are dates.
LISTS.append(st.lists(MOMENTS, max_size=20).map(lambda moments: [TIME, *moments]))


@given(st.one_of(LISTS))
@example([datetime.time(23, 59, 59, 999_999)])
@example(["a_x000D_b", "a\r_x005F_"])
@settings(max_examples=examples(200, 10), deadline=None)
def test_cells_have_their_values(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("cells")
    found = [row["x"] for row in rows_at(written_cells(folder / "17.xlsx", values, 17))]
    assert found == values
    if isinstance(values[0], datetime.datetime):
        rounded = [value.replace(microsecond=value.microsecond // 1000 * 1000) for value in values]
        for digits in (15, 16):
            path = written_cells(folder / f"{digits}.xlsx", rounded, digits)
            assert [row["x"] for row in rows_at(path)] == rounded


@pytest.mark.parametrize(
    ("kind", "cells", "found"),
    [
        ("int64", ["3", "4"], [3, 4]),
        ("int64", [3, "4"], [3, 4]),
        ("float64", ["1.5", 2], [1.5, 2.0]),
        ("date32", ["2024-02-29", DAY], [DAY, DAY]),
        ("timestamp[us]", ["2024-02-29 12:30:15", None], [TIME, None]),
        ("int64", ["3", "x", "4.5"], ["column 'x' is x in a.xlsx row 3", "column 'x' is 4.5 in a"]),
        ("float32", [0.1], "'x' of a.xlsx is double, and not float without loss"),
        ("date32", [TIME], "'x' of a.xlsx is timestamp.us., and not date32.day. without loss"),
    ],
)
def test_types_are_parsed_from_texts_or_refused(tmp_path, kind, cells, found):
    path = book(tmp_path / "a.xlsx", s=[["x", "y"], *([cell, 1] for cell in cells)])
    source = make_source(path, options={"types": {"x": kind}})
    if isinstance(found, str):
        with pytest.raises(SchemaConflict, match=found):
            source.schema()
    elif isinstance(found[0], str):
        messages = messages_of(source)
        assert len(messages) == len(found)
        assert all(map(str.startswith, messages, found))
    else:
        assert [row["x"] for row in rows_at(path, types={"x": kind})] == found


def test_kinds_that_differ_need_text(tmp_path):
    path = book(
        tmp_path / "a.xlsx", s=[["x", "y"], [1, 1], ["a", 2], [None, 3], [True, 4], [DAY, 5]]
    )
    with pytest.raises(SchemaConflict) as caught:
        rows_at(path)
    assert str(caught.value) == (
        "column 'x' is int64 in cell A2 of sheet 's' in a.xlsx but string in cell A3 of sheet 's' "
        "in a.xlsx: correct one, or pass --types x=string"
    )
    found = [row["x"] for row in rows_at(path, types={"x": "string"})]
    assert found == ["1", "a", None, "TRUE", "2024-02-29"]
    assert rows_at(path, types={"x": "string", "y": "float64"})[0]["y"] == 1.0
    with pytest.raises(UsageError, match="did you mean"):
        rows_at(path, types={"x": "string", "yy": "int64"})


def test_a_number_that_is_no_date_stays_a_number(tmp_path):
    made = openpyxl.Workbook()
    made.active.append(["x"])
    for days in (59, 60, 60.5, 61, 2_958_465, 2_958_466, 1e10):
        made.active.append([days])
        made.active.cell(made.active.max_row, 1).number_format = "yyyy-mm-dd"
    made.save(path := tmp_path / "a.xlsx")
    with pytest.raises(SchemaConflict, match=r"in cell A2 .* but int64 in cell A3 "):
        rows_at(str(path))
    found = [row["x"] for row in rows_at(str(path), types={"x": "string"})]
    assert found[:6] == ["1900-02-28", "60", "60.5", "1900-03-01", "9999-12-31", "2958466"]


def test_numbers_and_dates_join_across_files(tmp_path):
    book(tmp_path / "a.xlsx", s=[["x", "t"], [1, DAY]])
    book(tmp_path / "b.xlsx", s=[["x", "t"], [1.5, TIME]])
    midnight = datetime.datetime(2024, 2, 29)
    expected = [{"x": 1.0, "t": midnight}, {"x": 1.5, "t": TIME}]
    assert rows_at(str(tmp_path)) == expected


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([["x"], ["=1+1"]], {}, "cell A2 .* is a formula without a value: open the file in Excel"),
        ([["x"], ["#N/A"]], {}, r"cell A2 .* is the error #N/A: correct it, or pass --null '#N/A'"),
        ([["x", None], [1, 2]], {}, "cell B2 .* has a value, but its column has no name in row 1"),
        ([["x"], [1, None, 2]], {}, "cell C2 .* has a value, but its column has no name in row 1"),
        ([["x", "x"], [1, 2]], {}, "has two columns named 'x'"),
        ([[None], [1]], {}, "has no names of columns in row 1"),
        ([], {}, "has no names of columns in row 1"),
    ],
)
def test_what_has_no_value_is_refused_by_cell(tmp_path, rows, options, message):
    path = book(tmp_path / "a.xlsx", s=rows)
    with pytest.raises(DataError, match=message) as caught:
        rows_at(path, **options)
    assert "a.xlsx" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_null_words_and_empty_cells_are_null(tmp_path):
    rows = [["x", None, "y"], [1, None, "n/a"], [], ["#N/A", None, "b"], [None, None, None]]
    path = book(tmp_path / "a.xlsx", s=rows)
    expected = [{"x": 1, "y": None}, {"x": None, "y": None}, {"x": None, "y": "b"}]
    assert rows_at(path, null_words=["n/a", "#N/A"]) == expected


def test_cells_of_columns_that_are_left_out_do_not_matter(tmp_path):
    rows = [["x", "y", "z", None], [1, "#DIV/0!", "=1+1", 5], [2, 3, 4, None]]
    path = book(tmp_path / "a.xlsx", s=rows)
    assert rows_at(path, columns=["x"]) == [{"x": 1}, {"x": 2}]
    with pytest.raises(DataError, match=r"cell B2 .* is the error"):
        rows_at(path, columns=["x", "y"])


def test_a_size_that_is_too_small_hides_no_cells(tmp_path):
    import zipfile

    path = book(tmp_path / "a.xlsx", s=[["x", "y"], [1, 2], [3, 4]])
    with zipfile.ZipFile(path) as made:
        parts = {name: made.read(name) for name in made.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    parts[sheet] = parts[sheet].replace(b'ref="A1:B3"', b'ref="A1:A1"')
    assert b"A1:A1" in parts[sheet]
    with zipfile.ZipFile(path, "w") as made:
        for name, data in parts.items():
            made.writestr(name, data)
    assert rows_at(path) == [{"x": 1, "y": 2}, {"x": 3, "y": 4}]


def test_a_reject_has_the_number_of_its_row(tmp_path):
    path = book(tmp_path / "a.xlsx", s=[["x"], [1], [2.5], [3]])
    manifest = bt.write(path, tmp_path / "out", types={"x": "int64"}, max_rejects=1)
    assert manifest.rejects["rows"] == 1
    (reject,) = pq.read_table(tmp_path / "out" / "rejects").to_pylist()
    assert reject["address"] == "a.xlsx row 3"


def test_a_workbook_of_too_many_texts_is_refused(tmp_path, monkeypatch):
    path = book(tmp_path / "a.xlsx", rows=[["a"], *([f"text {number}"] for number in range(900))])
    # The sheet, which is streamed, is larger.
    monkeypatch.setattr(excel_cells, "_MOST_PART_BYTES", 20_000)
    assert len(rows_at(path)) == 900
    with zipfile.ZipFile(path, "a") as parts:
        parts.writestr("xl/sharedStrings.xml", bytes(20_001))
    message = r"^xl/sharedStrings\.xml of a\.xlsx has 20,001 bytes, which are read at once: write"
    with pytest.raises(DataError, match=message):
        rows_at(path)
