"""CSV: lines that are not rows, at the start of a file and between rows."""

import csv
import gzip
import io
import random

import pytest

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.sources.csv.source import Csv
from tests.helpers.reading import rows_of

QUOTE = 'a,"b'
TEXTS = ["1", "a b", 'say "x"', "two\nlines", "#5", "a,b", "", "é"]


def made_text(draw, *, ends, comment):
    """Return a CSV file with comments at random places, and the rows that Python's csv wrote."""
    text, rows = f"id,name{ends}", []
    for number in range(draw.randrange(60)):
        if comment and draw.random() < 0.4:
            odd = draw.choice(["", "x", ' "open', "a,b,c", "'", "#" * 90])
            text += f"{comment}{odd}{draw.choice([ends, ends * 2])}"
        out = io.StringIO()
        # A first field that begins with the comment character is quoted, so it is a row.
        row = [number if draw.random() < 0.8 else f"#{number}", draw.choice(TEXTS)]
        csv.writer(out, lineterminator=ends, quoting=csv.QUOTE_NONNUMERIC).writerow(row)
        text += out.getvalue()
        rows.append({"id": str(row[0]), "name": str(row[1])})
    if comment and draw.random() < 0.3:
        text += f'{comment} the "end'
    return text, rows


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_those_that_pythons_csv_wrote(seed, tmp_path):
    draw = random.Random(seed)
    ends, comment = draw.choice(["\n", "\r\n"]), draw.choice(["#", "%", None])
    skip = draw.randrange(5)
    above = "".join(draw.choice(["", "x", QUOTE, "# a", "1,2,3"]) + ends for _ in range(skip))
    text, expected = made_text(draw, ends=ends, comment=comment)
    data = ("\ufeff" * (seed % 2) + above + text).encode()
    for name, content in {"x.csv": data, "y.csv.gz": gzip.compress(data)}.items():
        (tmp_path / name).write_bytes(content)
        for chunk_bytes in (16, 50, 2**20):
            source = Csv(
                tmp_path / name,
                types={"id": "string", "name": "string"},
                comment=comment,
                skip_lines=skip,
                chunk_bytes=chunk_bytes,
            )
            assert rows_of(source) == expected


@pytest.mark.parametrize("chunk_bytes", [16, 40, 2**20])
@pytest.mark.parametrize("header", [True, False])
def test_line_numbers_are_those_of_the_file(tmp_path, chunk_bytes, header):
    lines = ["made by x", "", "a,b", "# one", "1,2", "", "3,x", "# two", "# three", "4,5,6", "7,8"]
    if not header:
        lines[2] = "0,0"
    path = tmp_path / "x.csv"
    path.write_text("\n".join(lines))
    options = {"skip_lines": 2, "comment": "#", "chunk_bytes": chunk_bytes}
    source = Csv(
        path, header=header, names=["a", "b"], types={"a": "int64", "b": "int64"}, **options
    )
    schema, units = source.schema(), source.all_units(source.all_scans())
    batches = [batch for unit in units for batch in source.read(unit, schema)]
    rejects = [(reject.address, reject.value) for batch in batches for reject in batch.rejects]
    assert rejects == [("x.csv:7", "x"), ("x.csv:10", "4,5,6")]
    assert sum(unit.rows or 0 for unit in units) == 5 - header
    inferred = Csv(path, header=header, names=["a", "b"], **options)
    found = [inferred.infer(unit).kinds[1] for unit in units]
    assert [one.line for kinds in found for one in kinds if one.text == "x"] == [7]


def test_one_column_has_blank_rows_but_no_comments(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("# top\na\n1\n\n# two\n3\n#")
    for chunk_bytes in (16, 2**20):
        source = Csv(path, comment="#", chunk_bytes=chunk_bytes)
        assert [row["a"] for row in rows_of(source)] == [1, None, 3]
        assert sum(unit.rows or 0 for unit in source.all_units(source.all_scans())) == 3


def test_too_few_lines_are_refused(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a\nb")
    with pytest.raises(DataError, match=r"^x\.csv has only 1 line ends: correct --skip-lines 2$"):
        rows_of(Csv(path, skip_lines=2))
    with pytest.raises(UsageError, match="skip_lines is -1: pass 0 or more"):
        Csv(path, skip_lines=-1)


@pytest.mark.parametrize(("comment", "other"), [(",", "delimiter"), ('"', "quote")])
def test_a_comment_is_no_other_character(comment, other):
    with pytest.raises(UsageError, match=f"comment and {other} are both"):
        Csv("x.csv", comment=comment)
