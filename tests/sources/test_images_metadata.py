"""Pictures with a table of metadata beside them, as Hugging Face's ImageFolder has it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.choose import detect_kind
from beam_tfrecord.sources.images.source import Images
from tests.helpers.formats import write_rows
from tests.helpers.reading import good_rows, messages_of
from tests.sources.made_images import jpeg, write_tree
from tests.sources.test_images_table import address

SUFFIXES = (".jsonl", ".csv", ".parquet")


def hugging_face(root: Path, cache: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split as Hugging Face reads them, with images as bytes."""
    datasets = pytest.importorskip("datasets")
    found = datasets.load_dataset("imagefolder", data_dir=str(root), cache_dir=str(cache))

    def plain(value):
        if isinstance(value, dict) and set(value) == {"bytes", "path"}:
            return value["bytes"] or Path(value["path"]).read_bytes()
        return [plain(one) for one in value] if isinstance(value, list) else value

    splits = {}
    for split, rows in found.items():
        table = rows.with_format("arrow")[:]
        splits[split] = [
            {name: plain(value) for name, value in row.items()} for row in table.to_pylist()
        ]
    gc.collect()  # Its reader of CSV leaves files open.
    return splits


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.slow
def test_rows_and_splits_are_those_of_hugging_face(tmp_path, suffix):
    root = tmp_path / "photos"
    names = ("train__0", "train__deep__1", "train__2", "test__3")
    write_tree(root, **{name: jpeg(number) for number, name in enumerate(names)})
    train = [
        {"file_name": "2.jpg", "caption": "two", "n": 2},
        {"file_name": "deep/1.jpg", "caption": "one", "n": 1},
        {"file_name": "./0.jpg", "caption": 'né, "ö"', "n": 0},
        {"file_name": "2.jpg", "caption": "again", "n": 3},
    ]
    test = [{"file_name": "3.jpg", "caption": "three", "n": 4}]
    write_rows(root / "train" / f"metadata{suffix}", train)
    write_rows(root / "test" / f"metadata{suffix}", test)
    source = Images(root)
    assert source.default_split_column() == "split"
    rows = good_rows(source)
    columns = ("image", "caption", "n")
    ours = {
        split: [{name: row[name] for name in columns} for row in rows if row["split"] == split]
        for split in ("train", "test")
    }
    assert ours == hugging_face(root, tmp_path / "cache")
    assert [row["path"] for row in rows][-3:] == ["train/deep/1.jpg", "train/0.jpg", "train/2.jpg"]
    assert "label" not in source.schema().names


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bad_rows_are_rejects_with_the_reason(tmp_path, suffix):
    root = tmp_path / "photos"
    write_tree(root, a=jpeg(0), b=jpeg(1))
    (tmp_path / "outside.jpg").write_bytes(jpeg(9))
    rows = [
        {"file_name": "a.jpg"},
        {"file_name": "gone.jpg"},
        {"file_name": None},
        {"file_name": "../outside.jpg"},
        {"file_name": "c/..\\../outside.jpg"},
        {"file_name": str(tmp_path / "outside.jpg")},
        {"file_name": f"file://{tmp_path}/outside.jpg"},
        {"file_name": "b.jpg"},
    ]
    write_rows(root / f"metadata{suffix}", rows)
    below = "is not a path below its directory: correct it"
    assert messages_of(Images(root)) == [
        "gone.jpg is missing",
        f"{address(root / f'metadata{suffix}', 2)} has no path",
        f"../outside.jpg {below}",
        f"c/..\\../outside.jpg {below}",
        f"{tmp_path}/outside.jpg {below}",
        f"file://{tmp_path}/outside.jpg {below}",
    ]
    assert [row["image"] for row in good_rows(Images(root))] == [jpeg(0), jpeg(1)]


@pytest.mark.parametrize("further", [{"x_file_name": "b.jpg"}, {"x_file_names": ["b.jpg"]}])
def test_further_images_are_refused_unless_their_names_are_asked_for(tmp_path, further):
    write_tree(tmp_path, a=jpeg(0))
    write_rows(tmp_path / "metadata.jsonl", [{"file_name": "a.jpg", **further}])
    with pytest.raises(UsageError, match=r"column 'x_file_names?' names further images, and one"):
        Images(tmp_path).schema()
    assert good_rows(Images(tmp_path, columns=["image"])) == [{"image": jpeg(0)}]
    columns = ["image", *further]
    assert good_rows(Images(tmp_path, columns=columns)) == [{"image": jpeg(0), **further}]


def test_folders_decide_if_a_layout_says_so(tmp_path):
    write_tree(tmp_path, cat__a=jpeg(0), dog__b=jpeg(1))
    write_rows(tmp_path / "metadata.csv", [{"file_name": "cat/a.jpg", "label": "x"}])
    assert [row["label_name"] for row in good_rows(Images(tmp_path))] == ["x"]
    found = good_rows(Images(tmp_path, layout="class"))
    assert [row["label_name"] for row in found] == ["cat", "dog"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("named", ["photos/*", "phot?s"])
def test_metadata_is_read_wherever_its_images_are(tmp_path, named, suffix):
    root, folder = tmp_path / "photos", "" if suffix == ".csv" else "train"
    write_tree(root, train__cat__a=jpeg(0), train__dog__b=jpeg(1))
    names = ("cat/a.jpg", "dog/b.jpg") if folder else ("train/cat/a.jpg", "train/dog/b.jpg")
    rows = [{"file_name": name, "label": f"is {name}", "n": at} for at, name in enumerate(names)]
    write_rows(root / folder / f"metadata{suffix}", rows)
    found = good_rows(Images(str(tmp_path / named)))
    assert [(row["label_name"], row["n"], row["image"]) for row in found] == [
        (row["label"], row["n"], jpeg(row["n"])) for row in rows
    ]


def test_a_directory_with_metadata_is_images(tmp_path):
    write_tree(tmp_path, train__a=jpeg(0))
    for suffix in SUFFIXES:
        path = tmp_path / "train" / f"metadata{suffix}"
        write_rows(path, [{"file_name": "a.jpg"}])
        assert detect_kind(tmp_path) == "images"
        path.unlink()
    (tmp_path / "other.csv").write_text("a\n1\n")
    with pytest.raises(UsageError, match=r"holds csv .1 file. and images .1 file."):
        detect_kind(tmp_path)
