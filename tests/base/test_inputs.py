"""Kinds of input, seen from names."""

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.choose import detect_kind, make_source
from beam_tfrecord.sources.tfrecord_files import is_incomplete


def touch(directory, *names):
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return str(directory)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("trips.csv", "csv"),
        ("trips.tsv", "csv"),
        ("trips.csv.gz", "csv"),
        ("trips.ndjson.zst", "json"),
        ("trips.JSON.gz", "json"),
        ("trips.parquet", "parquet"),
        ("file:///data/trips.pq", "parquet"),
        ("gs://bucket/trips-*.parquet", "parquet"),
        ("cat.JPG", "images"),
        ("x.npy", "numpy"),
        ("shop.sqlite", "sql"),
        ("sqlite:///shop.db", "sql"),
        ("postgresql://host/shop", "sql"),
        ("jdbc:postgresql://host/shop", "sql"),
    ],
)
def test_kind_by_name(path, kind):
    assert detect_kind(path) == kind
    assert detect_kind([path, path]) == kind


def test_directory_by_its_files_others_aside(tmp_path):
    touch(tmp_path, "a/1.parquet", "a/_SUCCESS", "README.md", "_tmp/x.csv", ".hidden/y.csv")
    assert detect_kind(str(tmp_path)) == "parquet"
    assert detect_kind(tmp_path) == "parquet"


def test_what_systems_leave_is_not_looked_at(tmp_path):
    names = ("cat/1.jpg", "cat/Thumbs.db", "cat/@eaDir/1.jpg.npy", "__MACOSX/a.csv", ".x/a.csv")
    assert detect_kind(touch(tmp_path, *names)) == "images"


def test_json_beside_files_of_another_kind_is_left_out(tmp_path):
    path = touch(tmp_path, "a.parquet", "info.json", "labels.jsonl")
    assert detect_kind(path) == "parquet"
    assert detect_kind(path, from_="json") == "json"
    assert detect_kind(f"{path}/*.json*") == "json"


def test_the_files_beside_shards_without_a_suffix_are_no_input(tmp_path):
    bt.write({"x": [1]}, tmp_path)
    for file in tmp_path.iterdir():
        file.rename(tmp_path / f"part-{file.name.removesuffix('.tfrecord')}")
    with pytest.raises(UsageError, match=f"no dataset at .*: did you mean '{tmp_path}/part'"):
        detect_kind(tmp_path)


def test_a_schema_beside_files_makes_no_dataset_of_them(tmp_path):
    path = touch(tmp_path, "a.csv", "schema.json")
    assert detect_kind(path) == "csv"
    assert not is_incomplete(path)
    assert is_incomplete(touch(tmp_path, ".tmp-1"))
    (tmp_path / ".tmp-1").unlink()
    assert is_incomplete(touch(tmp_path, "job.json"))
    (tmp_path / "job.json").unlink()
    assert is_incomplete(touch(tmp_path, "a.tfrecord.gz"))


def test_mixed_directory_names_both_kinds(tmp_path):
    path = touch(tmp_path, "a.csv", "b.parquet", "c.parquet")
    with pytest.raises(UsageError) as error:
        detect_kind(path)
    assert str(error.value) == (
        f"{path!r} holds csv (1 file) and parquet (2 files): pass --from to choose one"
    )
    assert detect_kind(path, from_="csv") == "csv"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "no input: give a file, a directory or a pattern"),
        (["a.csv", "b.parquet"], "'a.csv' is csv but 'b.parquet' is parquet: give inputs of one"),
    ],
)
def test_inputs_of_no_one_kind(inputs, message):
    with pytest.raises(UsageError) as error:
        detect_kind(inputs)
    assert str(error.value).startswith(message)


def test_file_of_unknown_suffix_needs_from(tmp_path):
    touch(tmp_path, "trips.dat")
    path = str(tmp_path / "trips.dat")
    with pytest.raises(UsageError, match=r"cannot tell what '.*trips\.dat' holds.*pass --from"):
        detect_kind(path)
    assert detect_kind(path, from_="csv") == "csv"


def test_empty_and_useless_directories(tmp_path):
    with pytest.raises(UsageError, match=r"holds no file \(names that begin with"):
        detect_kind(str(tmp_path))
    with pytest.raises(UsageError, match=r"no file in it ends in \.csv, .*: pass --from csv\|"):
        detect_kind(touch(tmp_path, "notes.md"))


def test_unknown_kind_names_the_nearest():
    with pytest.raises(UsageError, match=r"kind 'parket': did you mean 'parquet'\?"):
        detect_kind("x.csv", from_="parket")
    with pytest.raises(UsageError, match="the kinds are csv, "):
        detect_kind("x.csv", from_="zzz")


def test_option_of_another_kind_is_refused_by_its_flag():
    with pytest.raises(UsageError) as error:
        make_source("a.parquet", options={"null_words": ("-",)})
    assert str(error.value) == (
        "--null is not an option of parquet input: leave it out, or check --from"
    )
    with pytest.raises(UsageError, match=r"delimeter is not .* did you mean --delimiter\?"):
        make_source("a.csv", options={"delimeter": ";"})
    with pytest.raises(UsageError, match="paths is not an option"):
        make_source("a.csv", options={"paths": ("b.csv",)})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (pa.table({"a": [1]}), "Table|ChunkedArray"),
        (pa.table({"a": [1]}).to_pydict(), "dict"),
        ([{"a": 1}], "dict"),
        (None, "NoneType"),
        (b"a.csv", "bytes|int"),
    ],
    ids=["table", "columns", "rows", "nothing", "bytes"],
)
def test_what_is_no_path_is_named(value, kind):
    with pytest.raises(UsageError, match=rf"^cannot read an input of type ({kind}), which is not"):
        make_source(value)


def test_an_input_that_is_named_twice_gets_a_warning(caplog):
    make_source(["a.csv", "b.csv"])
    assert caplog.messages == []
    make_source(["a.csv", "b.csv", "a.csv"])
    assert caplog.messages == ["input is named more than once, and read once: 'a.csv'"]


def test_files_that_a_directory_hides_get_a_warning(tmp_path, caplog):
    path = touch(tmp_path, "a.csv", "b.csv.gz", "_SUCCESS", ".hidden", "Thumbs.db", "c.md")
    make_source([path, f"{path}/a.csv"])
    assert caplog.messages == []
    touch(tmp_path, "b.json", "c.json.gz", "_index/x", "below/part-00000", "f.000123")
    make_source(path)
    assert caplog.messages == [
        "skipped 4 files whose names do not end in .csv or .tsv: 2 .json, 2 without a suffix "
        "(b.json, below/part-00000, c.json.gz, f.000123): name them or a pattern to read "
        "them, with --from"
    ]
