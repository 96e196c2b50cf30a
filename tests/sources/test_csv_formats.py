"""CSV: dates, numbers and words for null as other countries and programs write them."""

import contextlib
import csv
import datetime
import decimal
import random
import re

import pandas as pd
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.csv.formats import Format
from beam_tfrecord.sources.csv.source import Csv
from tests.helpers.reading import rejects_of, rows_in


def written(path, *rows, delimiter=";"):
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return path


def column(source, name):
    return [row[name] for row in rows_in(source.batches())]


def rejected(source):
    return [(reject.address, reject.value) for reject in rejects_of(source)]


@pytest.mark.parametrize(
    ("form", "values", "expected", "arrow"),
    [
        ("%d.%m.%Y", ["31.12.2024", "1.2.1969"], ["2024-12-31", "1969-02-01"], "date32[day]"),
        ("%m/%d/%y", ["12/31/68", "1/2/69"], ["2068-12-31", "1969-01-02"], "date32[day]"),
        ("%d %b %Y", ["5 Mar 2024", "06 MAY 2024"], ["2024-03-05", "2024-05-06"], "date32[day]"),
        ("%d.%m.%Y %H:%M", ["1.2.2024 7:05"], ["2024-02-01T07:05:00"], "timestamp[us]"),
        ("%Y/%m/%d %I:%M %p", ["2024/1/2 12:05 am"], ["2024-01-02T00:05:00"], "timestamp[us]"),
        (
            "%d.%m.%Y %H:%M:%S.%f%z",
            ["1.2.2024 00:05:06.25+0130"],
            ["2024-01-31T22:35:06.250000+00:00"],
            "timestamp[us, tz=UTC]",
        ),
        ("%d%%%m%%%Y", ["1%2%2024"], ["2024-02-01"], "date32[day]"),
    ],
)
def test_formats_of_dates(tmp_path, form, values, expected, arrow):
    path = written(tmp_path / "x.csv", ["id", "at"], *enumerate(values), ["9", ""])
    source = Csv(path, delimiter=";", date_formats=[form])
    assert str(source.schema().field("at").type) == arrow
    assert [at and at.isoformat() for at in column(source, "at")] == [*expected, None]
    typed = Csv(path, delimiter=";", date_formats=[form], types={"at": arrow.partition("[d")[0]})
    assert column(typed, "at") == column(source, "at")


PAIRED = ["%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%y/%m/%d", "%d/%m/%y", "%d%m%Y", "%m%d%y"]
PAIRED += ["%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M %p", "%d%m%Y%H%M%S%f", "%H%M%d%m%y", "%d %b %Y"]
PAIRED += ["%d/%m/%Y %H:%M:%S%z", "%m/%d/%Y %H:%M:%S%z"]
WORDS = {
    "Y": ["2024", "2023", "1900", "0000", "9999"],
    "b": ["Jan", "feb", "MAY", "Sept"],
    "p": ["am", "PM", "x"],
    "f": ["0", "25", "123456", "1234567"],
    "z": ["Z", "+01:30", "-0160", "+2359", "+24:00"],
}
NUMBERS = [*map(str, range(62)), *(f"0{digit}" for digit in range(10))]


def in_python(text, formats):
    """Return a time by the first format with which Python can read a text."""
    for form in formats:
        with contextlib.suppress(ValueError):
            return datetime.datetime.strptime(text, form)
    return None


def test_the_first_format_that_python_can_read_counts():
    chosen, of_a_later_format = random.Random(7), 0
    for _ in range(150):
        formats = chosen.sample(PAIRED, 3)
        texts = [
            re.sub("%(.)", lambda part: chosen.choice(WORDS.get(part[1], NUMBERS)), form)
            for form in formats * 50
        ]
        read = Format(dates=tuple(formats)).plain(pa.array(texts)).to_pylist()
        for text, plain in zip(texts, read, strict=True):
            expected = in_python(text, formats)
            of_a_later_format += expected is not None and in_python(text, formats[:1]) is None
            if expected is None:
                assert plain == text, (text, formats)
            else:
                assert datetime.datetime.fromisoformat(plain) == expected, (text, formats)
    assert of_a_later_format > 1000


def test_a_value_of_another_form_makes_a_column_text(tmp_path):
    for other in ("2024-01-31", "31.12.24", "31.12.2024x", "31.02.2024", "soon"):
        path = written(tmp_path / "x.csv", ["id", "at"], [1, "31.12.2024"], [2, other])
        source = Csv(path, delimiter=";", date_formats=["%d.%m.%Y"])
        assert column(source, "at") == ["31.12.2024", other]
        typed = Csv(path, delimiter=";", date_formats=["%d.%m.%Y"], types={"at": "date32"})
        assert rejected(typed) == [("x.csv:3", other)]


def test_formats_of_some_columns(tmp_path):
    rows = [["a", "b=c", "n"], ["01/02/2024", "20240203", "20240203"]]
    path = written(tmp_path / "x.csv", *rows)
    formats = ["%d/%m/%Y", "b=c=%Y%m%d"]
    source = Csv(path, delimiter=";", date_formats=formats)
    (row,) = (row for batch in source.batches() for row in batch.rows())
    assert row == {"a": datetime.date(2024, 2, 1), "b=c": datetime.date(2024, 2, 3), "n": 20240203}
    several = Csv(path, delimiter=";", date_formats=["%m.%d.%Y", "a=%m/%d/%Y", "a=%d/%m/%Y"])
    assert column(several, "a") == [datetime.date(2024, 1, 2)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"date_formats": [form]}, f"--date-format '{form}' is no format of dates: pass %d, %m")
            for form in (
                *(
                    "%d.%m",
                    "%d.%m.%Y %q",
                    "%d.%m.%Y %d",
                    "%d.%m.%Y %y",
                    "%d %b.%m.%Y",
                    "%d.%m.%Y%z",
                ),
                *("%d.%m.%Y %H", "%d.%m.%Y %I:%M", "%d.%m.%Y %H:%M%p", "%d.%m.%Y %H:%M.%f"),
                *("%d.%m.%Y%z", "%d.%m.%Y %H:%M %Z", "%d.%m.%Y%", "today", ""),
            )
        ),
        ({"date_formats": ["%Y%m%d"]}, "would read integers as dates: write COLUMN=%Y%m%d"),
        ({"date_formats": "%d.%m.%Y"}, "is one string: pass a list of them"),
        ({"null_in": ["-1"]}, "--null-in '-1' names no column: write COLUMN=WORD"),
        ({"null_in": ["=-1"]}, "--null-in '=-1' names no column: write COLUMN=WORD"),
        ({"thousands": "."}, "--thousands and --decimal are both '.'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(UsageError) as error:
        Csv("x.csv", **options)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"date_formats": ["att=%d.%m.%Y"]}, "column 'att' is not in --date-format"),
        ({"null_in": ["aeg=-1"]}, "column 'aeg' is not in --null-in"),
    ],
)
def test_columns_that_are_not_there_are_refused(tmp_path, options, message):
    path = written(tmp_path / "x.csv", ["at", "age"], ["1.1.2024", "5"])
    with pytest.raises(UsageError) as error:
        Csv(path, delimiter=";", **options).schema()
    assert "'at'" in str(error.value) or "age" in str(error.value)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(("thousands", "point"), [(".", ","), (",", "."), ("'", "."), (None, ",")])
@pytest.mark.parametrize("seed", range(5))
def test_numbers_are_those_of_pandas(tmp_path, seed, thousands, point):
    draw = random.Random(seed)
    rows, floats = [], []
    for number in range(200):
        whole = draw.randrange(-(10 ** draw.randrange(1, 12)), 10**9)
        texts = [f"{whole:,}", f"{whole + draw.random():,.{draw.randrange(1, 9)}f}", f"{whole}"]
        swap = str.maketrans({",": thousands or "", ".": point})
        floats.append(float(texts[1].replace(",", "")))
        rows.append([number, *(text.translate(swap) for text in texts)])
    path = written(tmp_path / "x.csv", ["id", "i", "f", "plain"], *rows)
    expected = pd.read_csv(path, sep=";", thousands=thousands, decimal=point)
    source = Csv(path, delimiter=";", thousands=thousands, decimal=point, chunk_bytes=500)
    assert source.schema().types == [pa.int64(), pa.int64(), pa.float64(), pa.int64()]
    for name in ("i", "plain"):
        assert column(source, name) == expected[name].tolist()
    assert column(source, "f") == pytest.approx(expected["f"].tolist(), rel=1e-15)
    assert column(source, "f") == floats


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.234,5", 1234.5),
        (" 12,5 ", 12.5),
        ("1.234.567", 1234567.0),
        (",5", 0.5),
        ("-1.000,25e2", -100025.0),
        ("7", 7.0),
        ("NaN", None),
        *((text, "reject") for text in ("1.5", "1.23,4", "12345.678", "1,2,3", "1.2345,6", ".5")),
        *((text, "reject") for text in ("1,234.5", "1 234", "x", "1.234,5\n")),
    ],
)
def test_a_number_has_groups_of_three_or_none(tmp_path, text, number):
    path = written(tmp_path / "x.csv", ["id", "x"], [1, "0,5"], [2, text])
    options = {"delimiter": ";", "thousands": ".", "decimal": ","}
    source = Csv(path, types={"x": "float64"}, **options)
    if number == "reject":
        assert rejected(source) == [("x.csv:3", text)]
        assert column(Csv(path, **options), "x") == ["0,5", text]
    else:
        found = column(source, "x")[1]
        assert found == number if number is not None else found != found


def test_decimals_and_texts_of_floats_are_exact(tmp_path):
    digits = "1.234.567,1234567890123"
    path = written(tmp_path / "x.csv", ["id", "x"], [1, digits])
    options = {"delimiter": ";", "thousands": ".", "decimal": ","}
    source = Csv(path, types={"x": "decimal128(30, 13)"}, **options)
    assert column(source, "x") == [decimal.Decimal("1234567.1234567890123")]
    schema = bt.Schema.loads(
        '{"features": [{"name": "id", "type": "int64"},'
        ' {"name": "x", "type": "double", "store": "text"}]}'
    )
    bt.write(path, tmp_path / "out", schema=schema, source_options=options)
    (shard,) = (tmp_path / "out").glob("*.tfrecord")
    assert b"1234567.1234567890123" in shard.read_bytes()


def test_words_for_null_in_one_column(tmp_path):
    rows = [["age", "name", "x"], ["-1", "-1", "a"], ["-9", "n", "b=c"], ["5", "none", "z"]]
    path = written(tmp_path / "x.csv", *rows)
    words = ["age=-1", "age=-9", "name=none", "x=b=c"]
    source = Csv(path, delimiter=";", null_in=words, null_words=["z"])
    assert column(source, "age") == [None, None, 5]
    assert column(source, "name") == ["-1", "n", None]
    assert column(source, "x") == ["a", None, None]
    expected = pd.read_csv(
        path, sep=";", keep_default_na=False, na_values={"age": ["-1", "-9"], "name": ["none"]}
    )
    assert [value is None for value in column(source, "age")] == expected["age"].isna().tolist()


def test_words_that_are_null_are_not_remarked(tmp_path):
    path = written(tmp_path / "x.csv", ["a", "b"], ["n/a", "n/a"], ["A1", "B1"])
    source = Csv(path, delimiter=";", null_in=["a=n/a"])
    inferences = [source.infer(unit) for unit in source.all_units(source.all_scans())]
    (remark,) = source.remarks(inferences, source.schema())
    assert remark.startswith("b: 'n/a' in x.csv:2 is text: if it means missing")
