"""``torch()``: what batches hold, against the rows themselves and Pillow."""

from __future__ import annotations

import datetime
import io
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.dataset.load import Dataset, load
from beam_tfrecord.errors import DataError, UsageError
from tests.helpers.lazy import Lazy
from tests.helpers.made_datasets import make_dataset
from tests.sources.made_images import SAMPLES, encoded, jpeg, picture, write_tree

torch = Lazy("torch")
simplejpeg = Lazy("simplejpeg")

pytestmark = pytest.mark.slow


def made(directory: Path, table: pa.Table, shards: int = 2) -> Dataset:
    make_dataset(directory, table, shards=shards)
    return load(directory)


def test_types_and_shapes(tmp_path):
    table = pa.table(
        {
            "half": pa.array(np.arange(3, dtype=np.float16)),
            "single": pa.array([0.1, 0.2, 0.3], pa.float32()),
            "small": pa.array([1, 2, 3], pa.int8()),
            "unsigned": pa.array([1, 2, 2**32 - 1], pa.uint32()),
            "flag": [True, False, True],
            "pair": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
            "day": pa.array([1, 2, 3], pa.date32()),
            "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "text": ["a", None, "c"],
            "data": [b"a", b"b", b"c"],
            "tags": pa.array([[1.5], [], None], pa.list_(pa.float32())),
            "words": [["a", "b"], [], ["c"]],
        }
    )
    (batch,) = made(tmp_path, table, shards=1).torch(3)
    assert list(batch) == table.column_names
    kinds = {
        name: (one.dtype, tuple(one.shape))
        for name, one in batch.items()
        if isinstance(one, torch.Tensor)
    }
    assert kinds == {
        "half": (torch.float32, (3,)),
        "single": (torch.float32, (3,)),
        "small": (torch.int8, (3,)),
        "unsigned": (torch.uint32, (3,)),
        "flag": (torch.bool, (3,)),
        "pair": (torch.float32, (3, 2)),
        "day": (torch.int64, (3,)),
        "at": (torch.int64, (3,)),
    }
    rows = table.to_pydict()
    for name in ("small", "unsigned", "flag", "pair"):
        assert batch[name].tolist() == rows[name]
    assert batch["day"].tolist() == batch["at"].tolist() == [1, 2, 3]
    assert batch["text"] == rows["text"]
    assert batch["data"] == rows["data"]
    assert batch["words"] == rows["words"]
    assert [one if one is None else one.tolist() for one in batch["tags"]] == rows["tags"]
    assert batch["tags"][0].dtype == torch.float32


@pytest.mark.parametrize(
    ("dtype", "half", "other"),
    [
        (lambda: None, "float16", "float32"),
        (lambda: "float64", "float64", "float64"),
        (lambda: torch.bfloat16, "bfloat16", "bfloat16"),
    ],
)
def test_dtype_is_that_of_all_floats(tmp_path, dtype, half, other):
    table = pa.table(
        {
            "half": pa.array(np.float16([0.5, 1.5])),
            "single": pa.array([0.5, 1.5], pa.float32()),
            "tags": pa.array([[0.5], [1.5, 2.5]], pa.list_(pa.float32())),
            "id": [1, 2],
        }
    )
    (batch,) = made(tmp_path, table, shards=1).torch(2, dtype=dtype())
    assert batch["half"].dtype == getattr(torch, half)
    assert {batch["single"].dtype, *(one.dtype for one in batch["tags"])} == {getattr(torch, other)}
    assert batch["half"].tolist() == batch["single"].tolist() == [0.5, 1.5]
    assert batch["id"].dtype == torch.int64


def test_dtype_is_a_floating_point_type(tmp_path):
    dataset = made(tmp_path, pa.table({"x": [1.0, 2.0]}))
    for dtype in ("int64", torch.int32, "nonsense", 32):
        with pytest.raises(UsageError, match="is no floating-point type: pass one such as 'flo"):
            dataset.torch(1, dtype=dtype)


def test_numpy_arrays(tmp_path):
    arrays = {
        "fixed": np.arange(24, dtype=np.float64).reshape(4, 3, 2),
        "times": np.arange(4).astype("datetime64[s]"),
    }
    np.savez(tmp_path / "in.npz", **arrays)
    bt.write(tmp_path / "in.npz", tmp_path / "out")
    dataset = load(tmp_path / "out")
    found = {name: [] for name in arrays}
    for batch in dataset.torch(3, dtype=None):
        assert batch["fixed"].shape[1:] == (3, 2)
        assert batch["fixed"].dtype == torch.float64
        for name in arrays:
            found[name] += batch[name].tolist()
    expected = dataset.numpy()
    assert found["fixed"] == expected["fixed"].tolist()
    assert found["times"] == expected["times"].astype(np.int64).tolist()


@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_tensors_may_be_written_to_and_are_apart(tmp_path, batch_size):
    table = pa.table({"id": range(9), "x": np.arange(9.0), "y": np.arange(9.0)})
    dataset = made(tmp_path, table)
    batches = list(dataset.torch(batch_size))
    for batch in batches:
        batch["x"] += 100
    for name in ("id", "y"):
        joined = torch.cat([batch[name].reshape(-1) for batch in batches])
        assert joined.tolist() == list(range(9))
    assert all((batch["x"] == batch["y"] + 100).all() for batch in batches)


def test_single_rows(tmp_path):
    table = pa.table({"id": [1, 2], "text": ["a", "b"], "pair": pa.array([[1, 2], [3, 4]], PAIR)})
    dataset = made(tmp_path, table).torch()
    assert len(dataset) == 2
    rows = list(dataset)
    assert [row["id"].item() for row in rows] == [1, 2]
    assert [row["text"] for row in rows] == ["a", "b"]
    assert [row["pair"].tolist() for row in rows] == [[1, 2], [3, 4]]


PAIR = pa.list_(pa.int64(), 2)
MISSING = {
    "int": pa.array([1, None, 3], pa.int32()),
    "float": pa.array([0.5, None, 1.5]),
    "flag": pa.array([True, None, False]),
    "pair": pa.array([[1, 2], None, [3, 4]], PAIR),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_column_that_may_lack_numbers_is_refused_at_once(tmp_path, name):
    dataset = made(tmp_path, pa.table({"id": range(3), name: MISSING[name]}))
    message = (
        rf"^column '{name}' has 1 missing values, which no tensor holds: pass "
        rf"defaults=\{{'{name}': …\}}, nulls=<number> or nulls='mask', or choose other columns$"
    )
    with pytest.raises(UsageError, match=message):
        dataset.torch(2)
    assert len(list(dataset.torch(2, columns=["id"]))) == 2


def test_a_number_of_a_category_is_not_advised_to_who_passed_it(tmp_path):
    dataset = made(tmp_path, pa.table({"t": ["u", None, "u"]}))
    with pytest.raises(UsageError, match=r"pass defaults=\{'t': …\}, nulls='mask', or choose"):
        dataset.torch(categories={"t": ["u"]}, nulls=0)


def test_defaults_by_column(tmp_path):
    table = pa.table({**MISSING, "at": pa.array([1, None, 3], pa.timestamp("s"))})
    (batch,) = made(tmp_path, table, shards=1).torch(
        3,
        defaults={
            "int": 7,
            "float": -1,
            "flag": True,
            "pair": [8, 9],
            "at": datetime.datetime(1970, 1, 1, 0, 0, 5),
        },
    )
    assert {name: value.tolist() for name, value in batch.items()} == {
        "int": [1, 7, 3],
        "float": [0.5, -1.0, 1.5],
        "flag": [True, True, False],
        "pair": [[1, 2], [8, 9], [3, 4]],
        "at": [1, 5, 3],
    }


def test_one_number_for_all_columns(tmp_path):
    (batch,) = made(tmp_path, pa.table(MISSING), shards=1).torch(3, nulls=1, defaults={"int": 7})
    assert {name: value.tolist() for name, value in batch.items()} == {
        "int": [1, 7, 3],
        "float": [0.5, 1.0, 1.5],
        "flag": [True, True, False],
        "pair": [[1, 2], [1, 1], [3, 4]],
    }
    (batch,) = load(tmp_path, columns=["float"]).torch(3, nulls=math.nan)
    assert batch["float"].isnan().tolist() == [False, True, False]


def test_masks(tmp_path):
    table = pa.table({**MISSING, "id": [1, 2, 3], "at": pa.array([1, None, 3], pa.timestamp("s"))})
    batches = list(made(tmp_path, table, shards=1).torch(1, nulls="mask", defaults={"int": 7}))
    masks = ["float_mask", "flag_mask", "pair_mask", "at_mask"]
    for batch, present in zip(batches, (True, False, True), strict=True):
        assert list(batch) == [*table.column_names, *masks]
        assert all(batch[name].dtype == torch.bool for name in masks)
        assert [batch[name].tolist() for name in masks] == [[present]] * 4
    assert [batches[1][name].tolist() for name in ("int", "float", "flag", "pair", "at")] == [
        *([7], [0.0], [False], [[0, 0]], [0])
    ]


@pytest.mark.parametrize("nulls", [None, 5, "mask"])
def test_every_batch_has_the_same_keys_and_types(tmp_path, nulls):
    table = pa.table(
        {
            "text": ["a", "b", None, "d"],
            "tags": pa.array([[1], [2, 3], None, []], pa.list_(pa.int64())),
            "at": pa.array([1, 2, None, 4], pa.timestamp("s")),
        }
    )
    batches = list(made(tmp_path, table, shards=1).torch(1, nulls=nulls))
    kinds = [{name: type(value) for name, value in batch.items()} for batch in batches]
    assert kinds == kinds[:1] * 4
    assert batches[2]["text"] == batches[2]["tags"] == [None]
    missing = {None: -(2**63), 5: 5, "mask": 0}
    assert batches[2]["at"].tolist() == [missing[nulls]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nulls": 0.5}, "default 0.5 of column 'int' is not a value of type int32"),
        ({"nulls": -1, "columns": ["byte"]}, "default -1 of column 'byte' is not a value of type"),
        ({"nulls": 0.5, "columns": ["pair"]}, r"default \[0.5, 0.5\] of column 'pair' is not"),
        ({"defaults": {"y": 0}}, "there is a default for 'y', but the columns are int"),
        ({"defaults": 5}, "defaults is 5: pass a dict by column, as"),
        ({"rank": 1}, "rank and world belong together"),
        ({"rank": 2, "world": 2, "nulls": 0}, "reader 2 of 2 does not exist"),
        ({"batch_size": 0, "nulls": 0}, "a batch must have at least 1 row"),
    ],
)
def test_options_that_do_not_fit(tmp_path, options, message):
    table = {**MISSING, "byte": pa.array([1, None, 3], pa.uint8())}
    dataset = made(tmp_path, pa.table(table))
    with pytest.raises(UsageError, match=message):
        dataset.torch(**options)


def test_labels(tmp_path):
    table = pa.table(
        {
            "x": [0.5, 1.5],
            "kind": pa.array([1, 0], pa.int8()),
            "weight": [2.5, 3.5],
            "s": ["a", "b"],
        }
    )
    dataset = made(tmp_path, table, shards=1)
    ((features, label),) = dataset.torch(2, label="kind", columns=["x"])
    assert list(features) == ["x"]
    assert label.dtype == torch.int64
    loss = torch.nn.functional.cross_entropy(torch.zeros(2, 3), label)
    assert loss.item() == pytest.approx(math.log(3))
    ((features, labels),) = dataset.torch(2, label=["kind", "weight"])
    assert list(features) == ["x", "s"]
    assert {name: value.dtype for name, value in labels.items()} == {
        "kind": torch.int8,
        "weight": torch.float32,
    }
    ((features, label),) = dataset.torch(2, label="s")
    assert label == ["a", "b"]
    ((features, label),) = load(tmp_path, columns=["x"]).torch(2, label="kind")
    assert list(features) == ["x"]


def test_text_becomes_the_numbers_of_its_categories(tmp_path):
    words = ["b", "é", "", "a"]
    texts = ["a", "b", "é", "", "a", "b"]
    missing = ["a", None, "b", None, "a", "b"]
    ds = made(tmp_path, pa.table({"x": range(6), "text": texts, "missing": missing}))
    known = {"text": words, "missing": ["a", "b"]}
    rows = ds.arrow().to_pydict()

    def found(**options):
        batches = list(ds.torch(4, label="text", categories=known, **options))
        features = {
            name: torch.cat([features[name] for features, _ in batches]).tolist()
            for name in batches[0][0]
        }
        labels = torch.cat([label for _, label in batches])
        assert labels.dtype == torch.int64
        assert labels.tolist() == [words.index(text) for text in rows["text"]]
        return features, batches[0][0]["missing"].dtype

    numbers = [{"a": 0, "b": 1}.get(text) for text in rows["missing"]]
    assert found(defaults={"missing": "b"}) == (
        {"x": rows["x"], "missing": [1 if one is None else one for one in numbers]},
        torch.int64,
    )
    features, _ = found(nulls="mask")
    assert features["missing_mask"] == [one is not None for one in numbers]
    assert features["missing"] == [one or 0 for one in numbers]
    features, _ = found(nulls=-1)
    assert features["missing"] == [-1 if one is None else one for one in numbers]


def test_categories_that_do_not_fit(tmp_path):
    ds = made(tmp_path, pa.table({"x": [1, 2], "text": ["a", "b"], "missing": ["a", None]}))
    with pytest.raises(DataError, match=r"^column 'text' has 'b', which is not one of its categ"):
        list(ds.torch(2, columns=["text"], categories={"text": ["a"]}))
    with pytest.raises(UsageError, match=r"^categories has 'x', which is int64 and no text"):
        ds.torch(2, categories={"x": ["a"]})
    with pytest.raises(UsageError, match=r"^categories has 'text', which is not read"):
        ds.torch(2, columns=["x"], categories={"text": ["a"]})
    for nulls in (None, 0):
        with pytest.raises(UsageError, match="column 'missing' has 1 missing values"):
            ds.torch(2, categories={"missing": ["a"]}, nulls=nulls)
    for nulls in (0, "mask"):
        with pytest.raises(UsageError, match=r"^label 'missing' has 1 missing values: pass def"):
            ds.torch(2, label="missing", nulls=nulls)
    with pytest.raises(UsageError, match=r"^default 'c' of 'missing' is not one of its categories"):
        ds.torch(2, categories={"missing": ["a"]}, defaults={"missing": "c"})


def test_several_splits_are_not_mixed(tmp_path):
    table = pa.table({"id": range(6)})
    make_dataset(tmp_path, table, splits={"train": range(4), "test": range(4, 6)})
    with pytest.raises(UsageError, match=r"rows of the splits train, test: choose one, as load"):
        load(tmp_path).torch(2)
    assert len(load(tmp_path, split="test").torch(2)) == 1


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return a dataset of pictures of many sizes, formats and modes."""
    place = tmp_path_factory.mktemp("photos")
    for number, (name, data) in enumerate(SAMPLES.items()):
        path = place / "in" / f"class{number % 3}" / f"{name}.{name.partition('-')[0]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    write_tree(place / "in", class0__large=jpeg(1, width=90))
    bt.write(place / "in", place / "out", max_rejects=100)
    return place / "out"


def by_pillow(data, size=None):
    """Return the pixels of a picture of 8 bits without transparency, uint8 ``[3, h, w]``."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if size is not None:
        image = image.resize(size[::-1], Image.Resampling.BILINEAR)
    return np.asarray(image).transpose(2, 0, 1)


def test_pictures_are_what_pillow_decodes(photos):
    dataset = load(photos)
    rows = list(dataset.rows())
    found = []
    for images, labels in dataset.torch(4, label="label", image_size=(16, 24)):
        assert images.dtype == torch.float32
        assert images.shape[1:] == (3, 16, 24)
        assert labels.dtype == torch.int64
        found += zip(images, labels.tolist(), strict=True)
    assert [label for _, label in found] == [row["label"] for row in rows]
    compared = 0
    for (image, _), row in zip(found, rows, strict=True):
        opened = Image.open(io.BytesIO(row["image"]))
        if opened.mode.startswith("I") or opened.has_transparency_data:
            continue
        expected = torch.from_numpy(by_pillow(row["image"], (16, 24)).copy()).float() / 255
        assert torch.equal(image, expected), row["path"]
        compared += 1
    assert compared > 10


@pytest.mark.filterwarnings("ignore:TensorFlow")
@pytest.mark.parametrize(("format", "dtype"), [("PNG", "<u2"), ("TIFF", "<u2"), ("TIFF", ">u2")])
def test_sixteen_bits_and_transparency(tmp_path, recwarn, format, dtype):
    deep = np.arange(12, dtype=dtype).reshape(3, 4) * 5000
    clear = picture("RGBA")
    clear.putalpha(0)
    write_tree(tmp_path / "deep", a=encoded(Image.fromarray(deep.astype(dtype)), format))
    write_tree(tmp_path / "clear", a=encoded(clear, "PNG"))
    found = {}
    for name in ("deep", "clear"):
        bt.write(tmp_path / name, tmp_path / f"{name}-out")
        (found[name],) = load(tmp_path / f"{name}-out").torch(1, dtype=None)
    assert sum("pass decode=False" in str(one.message) for one in recwarn) == 1
    assert found["deep"][0, 0].tolist() == (deep // 256).tolist()
    assert (found["clear"] == 255).all()


def test_pictures_of_one_size_need_no_size(tmp_path):
    write_tree(tmp_path / "in", **{f"c{n % 2}__{n}": jpeg(n) for n in range(5)})
    bt.write(tmp_path / "in", tmp_path / "out")
    dataset = load(tmp_path / "out")
    images = torch.cat(list(dataset.torch(2, dtype=None)))
    assert images.dtype == torch.uint8
    assert np.array_equal(images, [by_pillow(row["image"]) for row in dataset.rows()])
    batch = next(iter(dataset.torch(2, columns=["image", "path"], decode=False)))
    assert batch == {name: [row[name] for row in dataset[:2]] for name in ("image", "path")}
    image = next(iter(dataset.torch()))
    assert image.shape == images.shape[1:]
    assert image.is_contiguous()
    assert images.is_contiguous()


def jpegs() -> dict[str, bytes]:
    """Return JPEG files of one size: each way to sample colors, each mode, and damaged ones."""
    made = {
        f"{mode} {subsampling} {quality}": encoded(
            picture(mode, width=33, height=18, seed=quality),
            "JPEG",
            quality=quality,
            subsampling=subsampling,
            progressive=quality == 75,
        )
        for mode in ("RGB", "L", "CMYK")
        for subsampling in range(3)
        for quality in (30, 75, 100)
    }
    whole = made["RGB 2 30"]
    scan = whole.index(b"\xff\xda") + 14
    for at in range(scan, len(whole) - 2, 7):
        made[f"changed {at}"] = whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]
    return made


def test_simplejpeg_decodes_the_pixels_of_pillow(tmp_path, monkeypatch):
    files = jpegs()
    write_tree(tmp_path / "in", **{f"c__{n:03}": data for n, data in enumerate(files.values())})
    bt.write(tmp_path / "in", tmp_path / "out")
    dataset = load(tmp_path / "out")
    assert len(dataset) == len(files)
    decode = simplejpeg.decode_jpeg
    decoded = []

    def counted(data, colors):
        pixels = decode(data, colors)
        decoded.append(data)
        return pixels

    monkeypatch.setattr("simplejpeg.decode_jpeg", counted)
    images = torch.cat(list(dataset.torch(4, dtype=None)))
    assert images.dtype == torch.uint8
    assert np.array_equal(images, [by_pillow(row["image"]) for row in dataset.rows()])
    sound = {data for name, data in files.items() if name.startswith(("RGB", "L"))}
    assert sound <= set(decoded), "Pillow decodes CMYK and faults"
    assert len(decoded) < len(files)


def test_transform_makes_the_tensor(photos):
    seen = []

    def transform(image):
        seen.append((image.mode, image.size))
        return torch.tensor(image.size)

    dataset = load(photos)
    rows = list(dataset.rows())
    sizes = torch.cat(list(dataset.torch(5, transform=transform)))
    assert {mode for mode, _ in seen} == {"RGB"}
    assert len(sizes) == len(rows)
    dataset.torch(5, transform=transform, image_size=(7, 9))
    (first, *_) = dataset.torch(5, transform=transform, image_size=(7, 9))
    assert first.tolist() == [[9, 7]] * 5
    uneven = dataset.torch(len(rows), transform=lambda image: torch.zeros(image.size))
    with pytest.raises(UsageError, match=r"needs tensors of one shape, but its images became \["):
        next(iter(uneven))
    arrays = dataset.torch(2, transform=np.asarray)
    with pytest.raises(UsageError, match=r"^transform returned ndarray, but a batch needs tensors"):
        next(iter(arrays))


def test_a_transform_of_no_decoded_picture_is_refused(photos):
    with pytest.raises(UsageError, match="transform has no effect without the decoded"):
        load(photos).torch(2, transform=str, columns=["label"])


def test_a_picture_of_floats_is_named_with_what_leaves_it_out(tmp_path):
    write_tree(tmp_path / "in", c__1=jpeg(1), c__2=encoded(Image.new("F", (23, 17)), "TIFF"))
    bt.write(tmp_path / "in", tmp_path / "out")
    with pytest.raises(DataError, match=r"are floating-point numbers, .* with --format png$"):
        list(load(tmp_path / "out").torch(2))
    bt.write(tmp_path / "in", tmp_path / "cured", format="png", max_rejects=1)
    assert len(list(load(tmp_path / "cured").torch())) == 1


def test_a_damaged_picture_is_named_by_its_row(tmp_path):
    pictures = {f"c__{n}": encoded(picture(seed=n), "PNG") for n in range(6)}
    pixels = pictures["c__3"].index(b"IDAT") + 20
    damaged = pictures["c__3"][:pixels] + bytes(40) + pictures["c__3"][pixels + 40 :]
    write_tree(tmp_path / "in", **(pictures | {"c__3": damaged}))
    bt.write(tmp_path / "in", tmp_path / "out")
    dataset = load(tmp_path / "out")
    bad = next(n for n, row in enumerate(dataset.rows()) if row["image"] == damaged)
    for shuffle in (False, True):
        with pytest.raises(
            DataError, match=rf"^the image of row {bad} is damaged .* --check decode$"
        ):
            list(dataset.torch(2, shuffle=shuffle))
