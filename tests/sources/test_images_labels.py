"""Classes of pictures: what tables and folders call them, and what files of labels can hold."""

import re

import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import labels_of, labels_text
from beam_tfrecord.sources.images import source as images_table
from beam_tfrecord.sources.images.source import Images
from tests.helpers.formats import write_file
from tests.helpers.reading import good_rows, messages_of
from tests.sources.made_images import jpeg, write_tree


@pytest.fixture(params=["t.csv", "t.parquet"])
def table(request, tmp_path):
    """Return a place for a table, with three pictures beside it."""
    write_tree(tmp_path, a=jpeg(), b=jpeg(1), c=jpeg(2))
    return tmp_path / request.param


def labelled(path, *labels):
    """Write a table of pictures with these labels, as CSV or Parquet, by the suffix."""
    names = [f"{name}.jpg" for name in "abc"[: len(labels)]]
    return write_file(path, pa.table({"path": names, "label": pa.array(labels)}))


def told(source):
    return [(row["label"], row.get("label_name")) for row in good_rows(source)]


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (["3", "2", "1", "0"], [0, 1, 3], [(3, "0"), (2, "1"), (0, "3")]),
        (["10", "20"], [20, 10, 20], [(1, "20"), (0, "10"), (1, "20")]),
        (["01", "1", "-2"], [1, 1, -2], [(1, "1"), (1, "1"), (2, "-2")]),
        (["007", "008"], [8, 7, 8], [(1, "008"), (0, "007"), (1, "008")]),
        (["0", "1", "2"], [2, 0, 1], [(2, "2"), (0, "0"), (1, "1")]),
        (["2", "x", "1"], [2, 0, 1], [(2, "1"), (0, "2"), (1, "x")]),
    ],
)
def test_numbers_are_names_where_all_names_are_numbers(table, names, labels, expected):
    assert told(Images(labelled(table, *labels), labels=names)) == expected


def test_numbers_that_are_no_names_are_rejects(table):
    source = Images(labelled(table, 10, 0, None), labels=["10", "20"])
    assert messages_of(source) == [
        "b.jpg is of class '0', which is not among the labels",
        "c.jpg has no class",
    ]


def test_numbers_among_names_are_names_in_every_piece(tmp_path, monkeypatch):
    write_tree(tmp_path, a=jpeg())
    monkeypatch.setattr(images_table, "TABLE_CHUNK_BYTES", 16)
    (tmp_path / "t.csv").write_text("path,label\n" + "a.jpg,2\n" * 9 + "a.jpg,x\n")
    source = Images(tmp_path / "t.csv", labels=["2", "x", "y"])
    assert len(source.all_units(source.all_scans())) > 1
    assert told(source) == [(0, "2")] * 9 + [(1, "x")]


def test_booleans_are_labels(table):
    path = labelled(table, True, False, True)
    assert told(Images(path)) == [(1, None), (0, None), (1, None)]
    assert told(Images(path, labels=["no", "yes"])) == [(1, "yes"), (0, "no"), (1, "yes")]
    by_name = Images(path, labels=["True", "False"])
    assert told(by_name) == [(0, "True"), (1, "False"), (0, "True")]


@pytest.mark.parametrize("text", ["", "\n", " \n\n"])
def test_labels_without_a_name_are_refused(table, tmp_path, text):
    (tmp_path / "labels.txt").write_text(text)
    source = Images(labelled(table, "cat", "dog", "cat"), labels=tmp_path / "labels.txt")
    with pytest.raises(UsageError, match=r"no class is named in '.*labels\.txt': write one"):
        source.schema()
    with pytest.raises(UsageError, match="no class is named in labels: write one per line"):
        Images(table, labels=[]).schema()


def test_classes_that_no_line_can_hold_are_rejects(table):
    source = Images(labelled(table, "cat\nfish", "", "dog"))
    assert messages_of(source) == [
        "a.jpg is of class 'cat\\nfish', which cannot be one line of labels.txt: rename it",
        "b.jpg has no class",
    ]
    assert told(source) == [(0, "dog")]
    assert labels_of(source.schema().field("label")) == ("dog",)


@pytest.mark.parametrize("name", ["new\nline", "end\r", "\ufeffmark"])
def test_a_class_that_no_line_can_hold_is_refused(tmp_path, name):
    write_tree(tmp_path, **{f"{name}__a": jpeg(), "dog__b": jpeg(1)})
    message = re.escape(f"class {name!r} cannot be one line of labels.txt: rename the folder")
    with pytest.raises(DataError, match=message):
        list(Images(tmp_path).files())
    with pytest.raises(UsageError, match=r"in labels cannot be one line of labels\.txt"):
        list(Images(tmp_path, labels=[name]).files())
    (message,) = messages_of(Images(tmp_path, labels=["dog"]))
    assert message.endswith("which cannot be one line of labels.txt: rename it")
    assert "label" not in Images(tmp_path, layout="flat").schema().names


@pytest.mark.parametrize("name", [" ", "a b ", "a\u2028b", "a\x85b", "日本", "#", "\t"])
def test_labels_that_are_written_can_be_read_back(tmp_path, name):
    write_tree(tmp_path, **{f"t__{name}__a": jpeg(), "t__dog__b": jpeg(1)})
    labels = labels_of(Images(tmp_path / "t").schema().field("label"))
    (tmp_path / "labels.txt").write_bytes(labels_text(labels))
    again = Images(tmp_path / "t", labels=tmp_path / "labels.txt").schema()
    assert labels_of(again.field("label")) == labels


def test_names_of_given_classes_come_with_their_numbers(table):
    source = Images(labelled(table, 1), labels=["x", "y"], columns=["label_name"])
    with pytest.raises(UsageError, match="add label to --columns"):
        source.all_scans()
