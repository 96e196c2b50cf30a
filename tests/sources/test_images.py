"""Pictures from folders: what rows say, what is refused, and that nothing depends on packs."""

import hashlib
import os

import pytest

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import labels_of
from beam_tfrecord.sources.images import folders as images_pack
from beam_tfrecord.sources.images import read as images_read
from beam_tfrecord.sources.images.source import Images
from tests.helpers.reading import batches_of, good_rows, rejects_of
from tests.sources.made_images import HEIGHT, WIDTH, encoded, exif, jpeg, picture, write_tree


def by_origin(batches):
    for batch in batches:
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows).tolist()
        for number, row in zip(numbers, batch.rows(), strict=True):
            yield batch.origin.unit, number, row["path"]


def test_a_row_has_the_untouched_bytes_and_what_they_are(tmp_path):
    data = encoded(picture("L"), "JPEG", exif=exif(6))
    write_tree(tmp_path, cat__a=data, dog__b=jpeg())
    first, second = good_rows(Images(tmp_path))
    header = {"width": WIDTH, "height": HEIGHT, "channels": 1, "format": "jpeg", "orientation": 6}
    file = {"path": "cat/a.jpg", "sha256": hashlib.sha256(data).hexdigest(), "image": data}
    assert first == {**header, **file, "label": 0, "label_name": "cat"}
    assert (second["label"], second["label_name"]) == (1, "dog")


@pytest.mark.parametrize("given", [["dog", "cat"], "file"])
def test_labels_pin_the_numbers(tmp_path, given):
    write_tree(tmp_path, t__cat__a=jpeg(), t__dog__b=jpeg(1))
    if given == "file":
        given = tmp_path / "classes.txt"
        given.write_text("dog\r\ncat\n\n", encoding="utf-8-sig")
    source = Images(tmp_path / "t", labels=given)
    rows = good_rows(source)
    assert [(row["label_name"], row["label"]) for row in rows] == [("cat", 1), ("dog", 0)]
    assert labels_of(source.schema().field("label")) == ("dog", "cat")


def test_labels_that_cannot_be(tmp_path):
    write_tree(tmp_path, a=jpeg())
    with pytest.raises(UsageError, match="labels are given, but no folder names a class"):
        list(Images(tmp_path, labels=["x"]).files())
    with pytest.raises(UsageError, match="'x' appears twice in labels"):
        list(Images(tmp_path, labels=["x", "x"]).files())
    with pytest.raises(UsageError, match=r"cannot read labels '.*gone\.txt'"):
        list(Images(tmp_path, labels=tmp_path / "gone.txt").files())


def test_splits_and_classes(tmp_path):
    write_tree(tmp_path, train__cat__a=jpeg(), test__dog__b=jpeg(1), Test__c=jpeg(2))
    source = Images(tmp_path)
    assert source.default_split_column() == "split"
    rows = [(row["split"], row["label_name"]) for row in good_rows(source)]
    assert rows == [("test", "dog"), ("train", "cat")]
    (reject,) = rejects_of(source)
    assert reject.message == ("Test/c.jpg lies in no class folder: move it, or pass --layout flat")


@pytest.mark.parametrize(
    ("layout", "columns"),
    [("flat", set()), ("class", {"label", "label_name"}), ("split", {"split"})],
)
def test_layout_is_as_told(tmp_path, layout, columns):
    write_tree(tmp_path, train__a=jpeg(), other__b=jpeg(1))
    names = set(Images(tmp_path, layout=layout).schema().names)
    assert names & {"label", "label_name", "split"} == columns


def test_faults_are_rejects_with_path_and_reason(tmp_path):
    good = jpeg()
    write_tree(tmp_path, a=good, b=b"", c=good[:-2], d=b"<html>not here", f=jpeg(1), g=good * 3)
    os.symlink(tmp_path / "nowhere.jpg", tmp_path / "e.jpg")
    os.symlink(tmp_path / "h.jpg", tmp_path / "h.jpg")
    source = Images(tmp_path, max_bytes=2 * len(good))
    assert [row["path"] for row in good_rows(source)] == ["a.jpg", "f.jpg"]
    rejects = rejects_of(source)
    cut = "cut off in its header: it begins with b'<html>no'"
    large = f"{3 * len(good):,} bytes, more than {2 * len(good):,}"
    assert [reject.row for reject in rejects] == [0] * 6
    assert [(reject.unit, reject.code, reject.message) for reject in rejects] == [
        ("b.jpg", "empty", "b.jpg is empty"),
        ("c.jpg", "truncated", "c.jpg is cut off before its end"),
        ("d.jpg", "not-an-image", f"d.jpg is not an image, or {cut}"),
        ("e.jpg", "missing", "e.jpg is missing"),
        ("g.jpg", "too-large", f"g.jpg has {large}: pass --max-bytes to allow it"),
        ("h.jpg", "unreadable", "h.jpg cannot be read (Too many levels of symbolic links)"),
    ]
    assert [number for _, number, _ in by_origin(batches_of(source))] == [0, 5]
    with pytest.raises(DataError, match=r"b\.jpg is empty"):
        list(source.batches())


def test_limits_of_pixels(tmp_path):
    write_tree(tmp_path, a=jpeg())
    (reject,) = rejects_of(Images(tmp_path, max_pixels=WIDTH * HEIGHT - 1))
    assert reject.code == "too-large"
    assert not rejects_of(Images(tmp_path, max_pixels=WIDTH * HEIGHT))


def test_without_a_check_everything_is_taken(tmp_path):
    write_tree(tmp_path, a=jpeg()[:-2], b=b"text")
    first, second = good_rows(Images(tmp_path, check="none"))
    assert (first["width"], first["format"]) == (WIDTH, "jpeg")
    assert (second["image"], second["width"], second["format"]) == (b"text", None, None)


def test_what_is_to_be_resized_must_be_a_picture(tmp_path):
    write_tree(tmp_path, a=jpeg(), b=b"text", c=jpeg()[:-60])
    for check in ("none", "decode"):
        source = Images(tmp_path, check=check, resize=4)
        assert [row["height"] for row in good_rows(source)] == [4]
        found = [(reject.value, reject.code) for reject in rejects_of(source)]
        code = "damaged" if check == "none" else "truncated"
        assert found == [("b.jpg", "not-an-image"), ("c.jpg", code)]


def test_a_file_that_grew_or_shrank_since_it_was_listed(tmp_path):
    write_tree(tmp_path, a=jpeg(), b=jpeg(1), c=jpeg(2))
    source = Images(tmp_path)
    scans = source.all_scans()
    (unit,) = source.all_units(scans)
    large, small = jpeg(3, width=600, height=600), jpeg(4, width=2, height=2)
    write_tree(tmp_path, a=large, b=small)
    rows = [row for batch in source.read(unit, source.schema(scans)) for row in batch.rows()]
    assert [row["image"] for row in rows] == [large, small, jpeg(2)]


@pytest.fixture
def many(tmp_path, monkeypatch):
    """Return a directory of 60 pictures in 3 classes that make 9 packs."""
    monkeypatch.setattr(images_pack, "PACK_FILES", 7)
    for number in range(60):
        write_tree(tmp_path, **{f"c{number % 3}__{number:02d}": jpeg(number)})
    return tmp_path


def test_packs_change_neither_rows_nor_their_order(many):
    source = Images(many)
    paths = [row["path"] for row in good_rows(source)]
    assert paths == sorted(str(p.relative_to(many)) for p in many.rglob("*.jpg"))
    files = list(source.files())
    assert [file.inside for file in files] == [7] * 8 + [4]
    assert sum(file.bytes for file in files) == sum(p.stat().st_size for p in many.rglob("*.jpg"))
    labels = {row["label_name"]: row["label"] for row in good_rows(source)}
    assert labels == {"c0": 0, "c1": 1, "c2": 2}


@pytest.mark.parametrize(
    ("batch_rows", "resize", "most"), [(1, None, 1), (3, None, 3), (100, None, 7), (100, 20, 1)]
)
def test_batches_change_neither_rows_nor_origins(many, batch_rows, resize, most, monkeypatch):
    source = Images(many, resize=resize)
    expected = list(by_origin(batches_of(source)))
    monkeypatch.setattr(images_read, "BATCH_BYTES", 1500)
    batches = batches_of(source, batch_rows=batch_rows)
    assert max(batch.num_rows for batch in batches) <= most
    assert max(batch.data.column("image").nbytes for batch in batches) < 3000
    assert list(by_origin(batches)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check": "all"}, "check 'all' is not known: use header, decode, none"),
        ({"format": "gif"}, "format 'gif' cannot be written: choose one of jpeg, png, webp"),
        ({"quality": 0}, "quality 0 is not from 1 to 100"),
        ({"resize": "12x"}, "cannot resize to '12x': write 256, or height x width as 240x320"),
        ({"max_bytes": 2**31}, "max_bytes 2147483648 is not from 1 to 1073741824"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(UsageError, match=message):
        Images("x", **options)


def test_notes_count_what_was_skipped(tmp_path):
    write_tree(tmp_path, a__x=jpeg())
    for name in ("a/.DS_Store", "a/Thumbs.db", "a/notes.txt", "a/b.HEIC", "z.heic", "z.avif", "z"):
        (tmp_path / name).write_text("x")
    os.mkfifo(tmp_path / "pipe.jpg")
    known = ".jpg, .jpeg, .jpe, .jfif, .png, .gif, .webp, .bmp, .tif, .tiff"
    source = Images(tmp_path)
    files = [file.outline() for file in source.files()]
    assert source.notes(files) == [
        "skipped 8 files: 1 .avif, 2 .heic, 1 .txt, 2 hidden or of the operating system, 1 not a "
        f"regular file, 1 without a suffix: to read other images, convert them to one of {known}"
    ]
    assert source.notes([]) == []
    for path in (*tmp_path.glob("a/[!.Tx]*"), *tmp_path.glob("z*")):
        path.unlink()
    assert source.notes(source.files()) == [
        "skipped 3 files: 2 hidden or of the operating system, 1 not a regular file"
    ]
