"""Pictures that a table names."""

import pytest

from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.features.feature import labels_of
from beam_tfrecord.sources.images import source as images_table
from beam_tfrecord.sources.images.source import Images
from tests.helpers.formats import write_rows
from tests.helpers.reading import batches_of, good_rows, messages_of
from tests.sources.made_images import jpeg, write_tree

ROWS = [
    {"path": "b/0.jpg", "label": "dog", "age": 3},
    {"path": "a/1.jpg", "label": "cat", "age": None},
    {"path": "a/2.jpg", "label": "dog", "age": 5},
]


def write_table(path, rows):
    """Write rows as CSV, Parquet or JSON Lines, by the suffix."""
    options = {"group_rows": 2} if path.suffix == ".parquet" else {}
    return write_rows(path, rows, **options)


@pytest.fixture(params=["t.csv", "t.parquet", "t.jsonl"])
def table(request, tmp_path):
    """Return a place for a table, with the pictures of `ROWS` beside it."""
    for number, row in enumerate(ROWS):
        write_tree(tmp_path, **{row["path"].removesuffix(".jpg").replace("/", "__"): jpeg(number)})
    return tmp_path / request.param


def address(table, row):
    """Return the address of a row of a table that `write_table` wrote, from 0."""
    if table.suffix == ".parquet":
        return f"{table.name} row {row}"
    return f"{table.name}:{row + (2 if table.suffix == '.csv' else 1)}"


def test_rows_have_the_pictures_and_the_further_columns(table):
    source = Images(write_table(table, ROWS))
    rows = good_rows(source)
    assert [row["image"] for row in rows] == [jpeg(0), jpeg(1), jpeg(2)]
    assert [(row["label_name"], row["label"]) for row in rows] == [
        ("dog", 1),
        ("cat", 0),
        ("dog", 1),
    ]
    assert [{name: row[name] for name in ("path", "age")} for row in rows] == [
        {"path": row["path"], "age": row["age"]} for row in ROWS
    ]
    assert labels_of(source.schema().field("label")) == ("cat", "dog")
    assert source.schema().names[-3:] == ["path", "sha256", "age"]


def test_base_and_columns_are_as_told(table, tmp_path):
    rows = [{"file": row["path"], "kind": row["label"]} for row in ROWS]
    (tmp_path / "sub").mkdir()
    path = write_table(tmp_path / "sub" / table.name, rows)
    options = {"base": str(tmp_path), "path_column": "file", "label_column": "kind"}
    assert [row["label_name"] for row in good_rows(Images(path, **options))] == [
        "dog",
        "cat",
        "dog",
    ]
    chosen = Images(path, columns=["label", "image"], **options)
    assert good_rows(chosen)[0] == {"label": 1, "image": jpeg(0)}


def test_numbers_are_labels_as_they_are(table):
    rows = [{**row, "label": number * 5} for number, row in enumerate(ROWS)]
    source = Images(write_table(table, rows))
    assert [row["label"] for row in good_rows(source)] == [0, 5, 10]
    assert "label_name" not in source.schema().names


def test_paths_that_look_like_numbers(tmp_path):
    (tmp_path / "007").write_bytes(jpeg())
    (tmp_path / "8").write_bytes(jpeg(1))
    table = write_table(tmp_path / "t.csv", [{"path": "007"}, {"path": "8"}])
    assert [row["path"] for row in good_rows(Images(table))] == ["007", "8"]


def test_faults_are_rejects_of_their_rows(table):
    rows = [
        *ROWS,
        {"path": "gone.jpg", "label": "cat", "age": 1},
        {"path": None, "label": "cat", "age": 1},
        {"path": "a/1.jpg", "label": None, "age": 1},
    ]
    batches = batches_of(Images(write_table(table, rows)))
    found = [(r.row, r.code, r.message) for batch in batches for r in batch.rejects]
    assert found == [
        (3, "missing", "gone.jpg is missing"),
        (4, "missing", f"{address(table, 4)} has no path"),
        (5, "no-label", "a/1.jpg has no class"),
    ]
    assert sum(batch.num_rows for batch in batches) == 3


def test_columns_that_cannot_be(table):
    rows = [{**row, "width": 1} for row in ROWS]
    with pytest.raises(UsageError, match="column 'width' of the table has the name of one that"):
        Images(write_table(table, rows)).schema()
    rows = [{**row, "label": 0.5} for row in ROWS]
    with pytest.raises(SchemaConflict, match="column 'label' is double, which cannot be a class"):
        Images(write_table(table, rows)).schema()


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"path_column": "no"}, "--path-column"),
        ({"label_column": "no"}, "--label-column"),
        ({"label_column": "no", "columns": ["image", "label"]}, "--label-column"),
        ({"label_column": "no", "labels": ["cat", "dog"]}, "--label-column"),
    ],
)
def test_columns_that_are_not_there_are_told_by_their_option(table, options, option):
    message = f"column 'no' of {option} is not in the input: the columns are age, label, path"
    with pytest.raises(UsageError, match=message):
        Images(write_table(table, ROWS), **options).schema()


def test_a_directory_may_hold_tables_and_their_pictures(table):
    write_table(table, ROWS)
    rows = good_rows(Images(table.parent, path_column="path"))
    assert rows == good_rows(Images(table))
    write_table(table.with_name("u.csv"), ROWS)
    write_table(table.with_name("v.parquet"), ROWS)
    with pytest.raises(UsageError, match=r"\.csv', .*'v\.parquet' as tables: name or"):
        Images(table.parent, path_column="path").schema()


def test_a_table_without_a_header_is_empty(tmp_path):
    (tmp_path / "t.csv").touch()
    with pytest.raises(UsageError, match="the tables are empty: give them a header"):
        Images(tmp_path / "t.csv").schema()


def test_json_that_is_not_right_is_named_with_its_line(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"path" 1}\n')
    with pytest.raises(DataError, match=r"t\.jsonl:1 is not valid JSON"):
        Images(path).schema()
    path.write_text('{"path": "a"}\n{"path" 1}\n')
    assert messages_of(Images(path))[0].startswith("the row in t.jsonl:2 is not valid JSON")


def test_a_piece_of_json_may_lack_columns(tmp_path, monkeypatch):
    write_tree(tmp_path, a=jpeg(0))
    monkeypatch.setattr(images_table, "TABLE_CHUNK_BYTES", 64)
    rows = [{"path": "a.jpg", "label": "x"}, *[{"label": "y"}] * 30]
    path = write_table(tmp_path / "t.jsonl", rows)
    source = Images(path)
    assert len(source.all_units(source.all_scans())) > 2
    assert labels_of(source.schema().field("label")) == ("x", "y")
    assert [row["label_name"] for row in good_rows(source)] == ["x"]
    assert messages_of(source) == [f"t.jsonl:{line} has no path" for line in range(2, 32)]


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_types_of_columns_are_stated(tmp_path, name):
    rows = [{"path": f"{i}.jpg", "label": 10 + i, "zip": i} for i in range(3)]
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(i))
    table = write_table(tmp_path / name, rows)
    found = good_rows(Images(table, types={"zip": "string", "label": "string"}))
    assert [row["zip"] for row in found] == ["0", "1", "2"]
    assert [(row["label"], row["label_name"]) for row in found] == [(0, "10"), (1, "11"), (2, "12")]


def test_values_of_two_kinds_are_text_by_a_stated_type(tmp_path, monkeypatch):
    monkeypatch.setattr(images_table, "TABLE_CHUNK_BYTES", 2**12)
    count = 400
    for i in range(2):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(i))
    rows = [{"path": f"{i % 2}.jpg", "label": i % 2} for i in range(count)]
    # Only the last piece of the table has the column.
    rows[-2] |= {"x": 1}
    rows[-1] |= {"x": "one"}
    table = write_table(tmp_path / "t.jsonl", rows)
    with pytest.raises(SchemaConflict, match="--types x=string"):
        good_rows(Images(table))
    found = good_rows(Images(table, types={"x": "string"}, labels=["a", "b"]))
    assert [row["x"] for row in found] == [None] * (count - 2) + ["1", "one"]
    assert [row["label_name"] for row in found] == ["a", "b"] * (count // 2)


def test_types_that_do_not_apply_are_refused(tmp_path):
    (tmp_path / "0.jpg").write_bytes(jpeg(0))
    with pytest.raises(UsageError, match="no table is given"):
        good_rows(Images(tmp_path, types={"x": "string"}))
    rows = [{"path": "0.jpg", "x": 1}]
    with pytest.raises(UsageError, match="Parquet: leave it out"):
        good_rows(Images(write_table(tmp_path / "t.parquet", rows), types={"x": "string"}))
    table = write_table(tmp_path / "t.csv", rows)
    with pytest.raises(UsageError, match="'path' holds paths, which are text"):
        good_rows(Images(table, types={"path": "int64"}))
    with pytest.raises(UsageError, match="'y' of --types is not in the input"):
        good_rows(Images(table, types={"y": "int64"}))
