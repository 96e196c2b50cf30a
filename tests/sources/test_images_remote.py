"""Pictures on a filesystem that is not this machine's."""

from __future__ import annotations

import dataclasses
import random

import pytest

from beam_tfrecord import storage
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.images import folders as images_pack
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.storage import Entry
from tests.helpers.reading import good_rows
from tests.sources.made_images import jpeg


@dataclasses.dataclass
class Bucket:
    """Objects by their URLs, in place of the two functions of `storage` that are used here."""

    objects: dict[str, bytes]
    is_sorted: bool = True
    listings: int = 0

    def list_files(self, directory):
        self.listings += 1
        paths = sorted(path for path in self.objects if path.startswith(directory + "/"))
        if not self.is_sorted:
            random.Random(0).shuffle(paths)
        return (Entry(path, len(self.objects[path]), "v1") for path in paths)

    def read_bytes(self, path):
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]


@pytest.fixture
def bucket(monkeypatch):
    """Return a store that every URL leads to, with pictures of two classes in it."""
    names = ("b/1.jpg", "a/2.jpg", "a/deep/3.jpg", "a/notes.txt", ".h/4.jpg", "a/.5.jpg")
    made = Bucket({f"gs://x/photos/{name}": jpeg(i) for i, name in enumerate(names)})
    made.objects["gs://x/other/6.jpg"] = b""
    monkeypatch.setattr(storage, "list_files", made.list_files)
    monkeypatch.setattr(storage, "read_bytes", made.read_bytes)
    return made


def test_pictures_and_their_classes(bucket, monkeypatch):
    monkeypatch.setattr(images_pack, "PACK_FILES", 2)
    source = Images("gs://x/photos/")
    rows = good_rows(source)
    assert [(row["path"], row["label"], row["image"]) for row in rows] == [
        ("a/2.jpg", 0, jpeg(1)),
        ("a/deep/3.jpg", 0, jpeg(2)),
        ("b/1.jpg", 1, jpeg(0)),
    ]
    assert source.notes(file.outline() for file in source.files()) == [
        "skipped 3 files: 1 .txt, 2 hidden or of the operating system: to read other images, "
        "convert them to one of .jpg, .jpeg, .jpe, .jfif, .png, .gif, .webp, .bmp, .tif, .tiff"
    ]


def test_a_store_that_lists_in_any_order(bucket):
    expected = good_rows(Images("gs://x/photos"))
    bucket.is_sorted = False
    bucket.objects = {path.replace("gs:", "hdfs:"): d for path, d in bucket.objects.items()}
    assert good_rows(Images("hdfs://x/photos")) == expected


@pytest.mark.parametrize("paths", [["gs://x/photos/*.jpg"], ["gs://x/a", "gs://x/b"]])
def test_one_directory_at_a_time(bucket, paths):
    with pytest.raises(UsageError, match="give one directory of images, without a pattern"):
        list(Images(paths).files())


def test_metadata_is_found_in_a_directory_and_its_folders(bucket):
    names = ("metadata.csv", "a/metadata.csv", "a/deep/metadata.csv", ".h/metadata.csv", "a/m.csv")
    for name in names:
        bucket.objects[f"gs://x/photos/{name}"] = b""
    found = images_pack.find_tree(["gs://x/photos"]).metadata
    assert found == ("gs://x/photos/a/metadata.csv", "gs://x/photos/metadata.csv")
    assert Images("gs://x/photos").is_table
    assert not Images("gs://x/photos", layout="flat").is_table
