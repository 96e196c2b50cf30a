"""Pictures read back as tensors, against what Keras reads from the same directory."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, UsageError
from tests.helpers.lazy import Lazy
from tests.sources.made_images import SAMPLES, encoded, exif, jpeg, picture, write_tree

tf = Lazy("tensorflow")

# What Keras takes: its list has no WebP and no TIFF, and its decoder no BMP below 8 bits.
KERAS = [
    name for name in SAMPLES if name.startswith(("jpeg", "png", "gif", "bmp")) and name != "bmp-1"
]


@pytest.fixture(scope="module")
def mixed(photos):
    """Return the dataset of those pictures."""
    bt.write(photos, photos.parent / "out", shards=2)
    return photos.parent / "out"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return a directory of pictures of many sizes, formats and modes in three classes."""
    root = tmp_path_factory.mktemp("mixed") / "photos"
    for number, name in enumerate(KERAS):
        path = root / f"class{number % 3}" / f"{name}.{name.partition('-')[0]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(SAMPLES[name])
    for number in range(6):
        write_tree(
            root, **{f"class{number % 3}__deep__{number}": jpeg(number, width=30 + 9 * number)}
        )
    (root / "class1" / "turned.jpg").write_bytes(encoded(picture(), "JPEG", exif=exif(6)))
    return root


@pytest.fixture(scope="module")
def same_size(tmp_path_factory):
    """Return a dataset of five pictures of one size."""
    tmp_path = tmp_path_factory.mktemp("same")
    write_tree(tmp_path / "in", **{f"c{n % 2}__{n}": jpeg(n) for n in range(5)})
    bt.write(tmp_path / "in", tmp_path / "out")
    return tmp_path / "out"


def pairs(dataset):
    """Return label and pixels of every picture, sorted."""
    return sorted(
        (int(label), image.tobytes())
        for images, labels in dataset.as_numpy_iterator()
        for image, label in zip(images, labels, strict=True)
    )


def test_pixels_and_labels_are_those_of_keras(photos, mixed):
    ours = bt.load(mixed).tf(batch_size=4, image_size=(20, 28), label="label")
    theirs = tf.keras.utils.image_dataset_from_directory(
        photos, image_size=(20, 28), batch_size=4, shuffle=False
    )
    assert ours.element_spec == theirs.element_spec
    assert pairs(ours) == pairs(theirs)
    assert len(pairs(ours)) == len(KERAS) + 7
    assert int(ours.cardinality()) == -(-(len(KERAS) + 7) // 4)
    labels = (mixed / "labels.txt").read_text().splitlines()
    assert labels == theirs.class_names


def test_mixed_sizes_are_refused_in_one_line(mixed):
    with pytest.raises(BeamTFRecordError) as caught:
        bt.load(mixed).tf(batch_size=4, label="label")
    assert str(caught.value) == (
        "images are from 17x23 to 17x75 (height x width): pass image_size=(height, width), or "
        "decode=False for their bytes"
    )


def test_pictures_of_one_size_need_none(same_size):
    dataset = bt.load(same_size).tf(batch_size=2, label="label")
    assert dataset.element_spec[0].shape.as_list() == [None, 17, 23, 3]
    expected = {
        tf.cast(tf.io.decode_jpeg(jpeg(number)), tf.float32).numpy().tobytes()
        for number in range(5)
    }
    assert {pixels for _, pixels in pairs(dataset)} == expected


def test_pictures_alone_and_one_by_one(same_size):
    (first, *_) = bt.load(same_size).tf()
    assert (first.shape, first.dtype) == ((17, 23, 3), tf.float32)
    batches = list(bt.load(same_size).tf(batch_size=2, drop_remainder=True, repeat=2))
    assert [batch.shape[0] for batch in batches] == [2, 2, 2, 2]


def test_pictures_in_other_columns_are_to_be_decoded_in_map(tmp_path):
    pq.write_table(pa.table({"jpg": [jpeg(1)], "image": [jpeg(1)]}), tmp_path / "a.parquet")
    bt.write(tmp_path / "a.parquet", tmp_path / "jpg", columns=["jpg"])
    with pytest.raises(UsageError, match=r"image', which this .* in tf\(…\).map\(…\), as docs/web"):
        bt.load(tmp_path / "jpg").tf(image_size=(4, 4))
    bt.write(tmp_path / "a.parquet", tmp_path / "image", columns=["image"])
    batch = next(iter(bt.load(tmp_path / "image").tf(1, image_size=(4, 4))))
    assert batch.shape == (1, 4, 4, 3)


def test_bytes_are_given_where_they_are_wanted(same_size):
    features = next(iter(bt.load(same_size).tf(5, decode=False)))
    assert sorted(features["image"].numpy()) == sorted(jpeg(number) for number in range(5))
    paths = next(iter(bt.load(same_size).tf(5, columns=["path"])))
    assert list(paths) == ["path"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["path"]}, "image_size needs the column 'image', which is not selected"),
        ({"decode": False}, "image_size has no effect with decode=False: leave one of them out"),
    ],
)
def test_a_size_of_no_picture_is_refused(same_size, options, message):
    with pytest.raises(UsageError, match=message):
        bt.load(same_size).tf(image_size=(4, 4), **options)


@pytest.mark.parametrize("size", [5, (5,), (0, 5), (4, 4, 3), ("a", 4), (4.5, 4)])
def test_what_is_no_size_is_refused(same_size, size):
    with pytest.raises(UsageError, match=r"is not a size: pass \(height, width\) in pixels"):
        bt.load(same_size).tf(image_size=size)


@pytest.mark.parametrize("framework", ["tf", "keras"])
@pytest.mark.parametrize(("name", "times"), [("png-grey-16", 1), ("png-grey", 0), ("jpeg", 0)])
def test_bits_that_are_cut_are_told_once(tmp_path, recwarn, framework, name, times):
    write_tree(tmp_path / "in", **{f"c__{number}": SAMPLES[name] for number in range(4)})
    bt.write(tmp_path / "in", tmp_path / "out")
    dataset = bt.load(tmp_path / "out")
    list(dataset.tf(2, decode=False))
    list(getattr(dataset, framework)(2))
    assert sum("pass decode=False" in str(one.message) for one in recwarn) == times


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """Return a dataset of six pictures of one size, with lists of several lengths beside them."""
    directory = tmp_path_factory.mktemp("tagged")
    write_tree(directory / "in", **{f"c__{n}": jpeg(n) for n in range(6)})
    paths = sorted(path for path in (directory / "in").rglob("*") if path.is_file())
    table = pa.table(
        {
            "path": [path.relative_to(directory / "in").as_posix() for path in paths],
            "label": [number % 2 for number in range(6)],
            "tags": [list(range(number % 3)) for number in range(6)],
            "words": [["w"] * (number % 4) for number in range(6)],
            "boxes": pa.array(
                [[[1.0, 2.0, 3.0, number]] * (number % 3) for number in range(6)],
                pa.list_(pa.list_(pa.float32(), 4)),
            ),
            "deep": [[[1] * number] * (number % 2) for number in range(6)],
            "maybe_words": [None if number == 1 else ["w"] * number for number in range(6)],
            "maybe": [None if number == 2 else number for number in range(6)],
        }
    )
    pq.write_table(table, directory / "in.parquet")
    bt.write(
        directory / "in.parquet",
        directory / "out",
        from_="images",
        shards=2,
        source_options={"base": str(directory / "in")},
    )
    return directory / "out"


def plain(value):
    """Return what a tensor of any kind holds."""
    if isinstance(value, tf.SparseTensor):
        return tf.sparse.to_dense(value, default_value=-1).numpy().tolist()
    return value.to_list() if isinstance(value, tf.RaggedTensor) else value.numpy().tolist()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"image_size": (12, 9)},
        {"label": "tags"},
        {"label": ["label", "boxes"], "drop_remainder": True},
        {"shuffle": True, "seed": 3},
        {"repeat": 2, "shard": (0, 1)},
    ],
)
def test_lists_beside_decoded_pictures_are_those_beside_their_bytes(tagged, options):
    columns = ["image", "label", "tags", "words", "boxes", "deep", "maybe_words", "maybe"]
    size = options.pop("image_size", None)
    decoded = bt.load(tagged).tf(4, columns=columns, image_size=size, **options)
    stored = bt.load(tagged).tf(4, columns=columns, decode=False, **options)
    batches = list(decoded)
    assert int(decoded.cardinality()) == int(stored.cardinality()) == len(batches)
    specs = [
        tf.nest.flatten(dataset.map(without_image).element_spec) for dataset in (decoded, stored)
    ]
    assert all(ours.is_subtype_of(theirs) for ours, theirs in zip(*specs, strict=True))
    for found, expected in zip(batches, stored, strict=True):
        parts = (
            [(found, expected)] if isinstance(found, dict) else zip(found, expected, strict=True)
        )
        for ours, theirs in parts:
            if not isinstance(ours, dict):
                assert plain(ours) == plain(theirs)
                continue
            assert sorted(ours) == sorted(theirs)
            for name in set(ours) - {"image"}:
                assert type(ours[name]) is type(theirs[name])
                assert plain(ours[name]) == plain(theirs[name])
            if "image" in ours:
                assert ours["image"].shape == (theirs["image"].shape[0], *decoded_size(size), 3)


def without_image(*parts):
    return [
        {name: part[name] for name in part if name != "image"} if isinstance(part, dict) else part
        for part in parts
    ]


def decoded_size(size):
    """Return height and width of a picture that is resized, or of those of `jpeg`."""
    return size or tf.io.decode_jpeg(jpeg(0)).shape[:2]
