"""The CSV source: headers, many files, compression, encodings and damaged input."""

import gzip

import pytest

from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.sources.csv import read as csv_read
from beam_tfrecord.sources.csv.source import Csv
from tests.helpers.reading import rows_and_rejects


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("a,a\n1,2\n", "column 'a' appears twice in the header of a.csv: pass --names"),
        ("a,\n1,2\n", "column 2 has no name in the header of a.csv: pass --names with a name for"),
        (',"b,c"\n1,2\n', "in the header of a.csv: pass --names with a name for each column"),
        (b"a\0,b\n1,2\n", "NUL bytes"),
        ("\ufeffa,b\n".encode("utf-16-be"), "looks like UTF-16: pass --encoding utf-16"),
        ("\ufeffa,b\n".encode("utf-32-le"), "looks like UTF-32: pass --encoding utf-32"),
        ("\ufffea,b\n", "looks like UTF-16: pass --encoding utf-16"),
        ("ï»¿a,b\n", "looks like UTF-8: pass --encoding utf-8"),
        (b"\xe9,b\n1,2\n", "the header of a.csv is not utf-8: pass --encoding"),
        ('"a,b\n1,2\n', r"a\.csv:1 has a quote that never closes"),
        ('"a"x,b\n1,2\n', r"a\.csv:1 has text behind a closing quote: .* pass --quote none"),
    ],
)
def test_a_bad_header_is_one_clear_error(write, header, message):
    with pytest.raises(DataError, match=message):
        Csv(write(header)).all_scans()


def test_names_replace_the_header_or_stand_in_for_it(write):
    path = write("a,a\n1,2\n")
    assert rows_and_rejects(Csv(path, names=["x", "y"]))[0].to_pylist() == [{"x": 1, "y": 2}]
    path = write("1,2\n3,4\n")
    assert rows_and_rejects(Csv(path, header=False))[0].to_pydict() == {"f0": [1, 3], "f1": [2, 4]}
    named = Csv(path, header=False, names=["x", "y"])
    assert rows_and_rejects(named)[0].to_pydict() == {"x": [1, 3], "y": [2, 4]}
    with pytest.raises(DataError, match=r"a\.csv has 2 columns but --names has 1: pass one"):
        Csv(path, names=["x"]).all_scans()


def test_columns_match_by_name_across_files(write, tmp_path):
    write("a,b\n1,x\n", "1.csv")
    write("b,a\ny,2\n", "2.csv")
    table, _ = rows_and_rejects(Csv(tmp_path))
    assert table.to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
    assert rows_and_rejects(Csv(tmp_path, columns=["b"]))[0].to_pydict() == {"b": ["x", "y"]}
    with pytest.raises(UsageError, match="column 'z' is not in the input"):
        Csv(tmp_path, columns=["z"]).schema()
    write("b,c\nz,9\n", "3.csv")
    with pytest.raises(SchemaConflict, match=r"'a' is in 1\.csv but not in 3\.csv: pass --union"):
        Csv(tmp_path).schema()
    assert rows_and_rejects(Csv(tmp_path, columns=["b"]))[0]["b"].to_pylist() == ["x", "y", "z"]
    table, _ = rows_and_rejects(Csv(tmp_path, union=True))
    assert table.to_pydict() == {"a": [1, 2, None], "b": ["x", "y", "z"], "c": [None, None, 9]}


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["2", "3", "?"], "'?' in 2.csv:4: pass --null '?' if it means missing, or"),
        (["2", "3", "007"], "'007' in 2.csv:4: correct it, or pass"),
        (["low", "mid", "low"], "'low' in 2.csv:2: pass --null 'low' if it means missing, or"),
        (["2024-01-01"] * 2 + ["0"], "'2024-01-01' in 2.csv:2: correct it, or pass"),
    ],
)
def test_a_conflict_names_the_value_and_its_cure(write, tmp_path, cells, told):
    write("hp\n" + "1.5\n" * 9, "1.csv")
    write("hp\n" + "".join(f"{cell}\n" for cell in cells), "2.csv")
    for chunk_bytes in (16, 2**20):
        with pytest.raises(SchemaConflict) as caught:
            Csv(tmp_path, chunk_bytes=chunk_bytes).schema()
        assert (
            str(caught.value)
            == f"column 'hp' is float64 in 1.csv but text because of {told} --types hp=string"
        )


@pytest.mark.parametrize(
    ("values", "null", "expected", "named"),
    [
        (["2002", "no"], [], ["2002", "no"], ["no"]),
        (["", "2002"], [], ["", "2002"], [""]),
        (["2002", "no"], ["no"], [2002, None], []),
        (["01", "10"], [], ["01", "10"], []),
        (["no", "yes"], [], ["no", "yes"], []),
    ],
)
def test_words_in_directories_are_named_or_null(write, tmp_path, values, null, expected, named):
    for value in values:
        (tmp_path / f"k={value}").mkdir()
        write("a\n1\n", f"k={value}/a.csv")
    source = Csv(tmp_path, null_words=null)
    assert sorted(rows_and_rejects(source)[0]["k"].to_pylist(), key=str) == expected
    lines = [line.partition(": pass --null")[0] for line in source.inferred()[1]]
    assert lines == [f"k: text because of the directory 'k={word}'" for word in named]


@pytest.mark.parametrize(
    "encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig", "shift_jis"]
)
def test_encodings(write, encoding):
    word = "日本" if encoding == "shift_jis" else "é\u00fc"
    text = f"{word},b\n" + f'{word},"x\n{word}"\n' * 50
    source = Csv(write(text.encode(encoding)), encoding=encoding, chunk_bytes=64)
    table, rejects = rows_and_rejects(source)
    assert rejects == []
    assert table.to_pydict() == {word: [word] * 50, "b": [f"x\n{word}"] * 50}


def test_bytes_without_meaning_in_the_encoding_are_rejects(write):
    source = Csv(write(b"a,b\nx,1\n\x81,2\n\xe9,3\n"), encoding="cp1252")
    table, rejects = rows_and_rejects(source)
    assert table.to_pydict() == {"a": ["x", "é"], "b": [1, 3]}
    assert [reject.row for reject in rejects] == [1]
    cause = "is not text without NUL in the encoding of the file: correct it, or pass --encoding"
    assert rejects[0].message.endswith(f" in a.csv:3, which {cause}")


def test_a_byte_order_mark_is_dropped(write):
    for chunk_bytes in (16, 100):
        source = Csv(write(b'\xef\xbb\xbf"a",b\n1,2\n3,4\n'), chunk_bytes=chunk_bytes)
        assert rows_and_rejects(source)[0].to_pydict() == {"a": [1, 3], "b": [2, 4]}


def test_blank_lines(write):
    two = Csv(write("\n\na,b\n\n1,2\n\r\n\n3,4\n\n"), chunk_bytes=16)
    assert rows_and_rejects(two)[0].to_pydict() == {"a": [1, 3], "b": [2, 4]}
    one = Csv(write("\na\n1\n\n3\n\n"), chunk_bytes=16)
    assert rows_and_rejects(one)[0].to_pydict() == {"a": [1, None, 3, None]}
    assert sum(unit.rows for unit in one.all_units(one.all_scans())) == 4


def test_a_row_too_long_to_hold_is_an_error(write, monkeypatch):
    monkeypatch.setattr(csv_read, "MAX_ROW_BYTES", 2**21)
    source = Csv(write(b'a,b\n1,2\n3,"' + b"x\n" * 2**22))
    with pytest.raises(DataError, match=r"the row in a\.csv:3 is longer than 2097152 bytes"):
        source.schema()


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ",,"},
        {"delimiter": "\n"},
        {"delimiter": '"'},
        {"quote": "é"},
        {"escape": '"'},
        {"encoding": "nonsense"},
        {"names": ["a", "a"]},
        {"columns": "a"},
    ],
)
def test_options_are_checked_when_given(options):
    with pytest.raises(UsageError):
        Csv("a.csv", **options)


def test_the_suffix_of_a_file_decides_its_delimiter_unless_one_is_passed(write):
    paths = [write("a,b\n1,x\n"), write("a\tb\n2\ty,z\n", "b.tsv")]
    packed = write(gzip.compress(b"a\tb\n3\tw\n"), "c.tsv.gz")
    table, rejects = rows_and_rejects(Csv([*paths, packed]))
    assert table.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y,z"}, {"a": 3, "b": "w"}]
    assert not rejects
    assert Csv(paths[1], delimiter=",").schema().names == ["a\tb"]


def test_the_delimiter_of_the_files_is_part_of_the_fingerprint(write):
    paths = [write("a,b\n1,x\n"), write("a\tb\n2\ty\n", "b.tsv")]

    def delimiter(paths, **options):
        source = Csv(paths, **options)
        return source.options_for(list(source.files()))["delimiter"]

    assert [delimiter(path) for path in paths] == [",", "\t"]
    assert delimiter(paths) is None
    assert [delimiter(path, delimiter=",") for path in paths] == [",", ","]
