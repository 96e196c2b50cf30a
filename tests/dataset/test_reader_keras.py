"""`Dataset.keras`: what `fit` gets for every kind of column, against the rows and NumPy."""

import datetime
import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, UsageError
from tests.helpers.datasets import write_parquet
from tests.helpers.lazy import Lazy

tf = Lazy("tensorflow")
keras = Lazy("keras")

# Keras and TensorFlow call parts of themselves that they have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore")

ROWS = 70
BATCH = 32
CITIES = ["Oslo", "Rome", "Graz"]
WORDS = ["night", "airport"]
# A batch of the size 32 in which every value is missing.
NO_TIP = range(32, 64)


def made_rows():
    """Return a column of every kind."""
    i = np.arange(ROWS)
    tips = [None if row in NO_TIP or row % 5 == 0 else row / 4 for row in range(ROWS)]
    pairs = [[row / 2, -row] for row in range(ROWS)]
    return pa.table(
        {
            "km": pa.array(i / 8, pa.float32()),
            "stops": pa.array(i % 4, pa.int16()),
            "exact": pa.array(i / 3, pa.float64()),
            "price": pa.array([str(row) + ".25" for row in range(ROWS)]).cast(pa.decimal128(9, 2)),
            "paid": pa.array(i % 3 == 0),
            "pair": pa.array(pairs, pa.list_(pa.float32(), 2)),
            "grid": pa.array([[[row, 1], [2, 3]] for row in range(ROWS)], GRID),
            "place": pa.array([{"x": row / 2, "y": row} for row in range(ROWS)], PLACE),
            "tip": pa.array(tips, pa.float64()),
            "seats": pa.array([None if tip is None else int(tip) for tip in tips], pa.int64()),
            "city": pa.array([CITIES[row % 3] for row in range(ROWS)]),
            "note": pa.array([None if row % 2 else f"note {row}" for row in range(ROWS)]),
            "raw": pa.array([b"\xff"] * ROWS),
            "tags": pa.array([WORDS[: row % 3] for row in range(ROWS)]),
            "codes": pa.array([list(range(row % 4)) for row in range(ROWS)]),
            "start": pa.array([datetime.datetime(2026, 1, 1) for _ in range(ROWS)]),
            "vote": pa.array(
                [[float(row % 3 == k) for k in range(3)] for row in range(ROWS)], VOTE
            ),
            "share": pa.array((i % 7) / 8, pa.float32()),
            "fare": pa.array(i * 2.0, pa.float32()),
        }
    )


PLACE = pa.struct([pa.field("x", pa.float64(), False), pa.field("y", pa.int64(), False)])
GRID = pa.list_(pa.list_(pa.int64(), 2), 2)
VOTE = pa.list_(pa.float32(), 3)
# Fields of a struct may be missing, as far as a schema of Parquet says.
PLACED = {"place": {"x": 0, "y": 0}}
NUMBERS = ["km", "stops", "exact", "price", "paid", "pair", "grid", "place"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    directory = tmp_path_factory.mktemp("keras")
    source = write_parquet(directory / "input", made_rows())
    schema = bt.schema(source).edit(exact=bt.Feature(type="double", store="bytes"))
    bt.write(source, directory / "out", schema=schema, seed=3)
    return directory / "out"


def numbers_of(table, names):
    """Return columns side by side as float32, from Python values."""
    flat = []
    for row in table.select(names).to_pylist():
        flat.append([float(value) for one in row.values() for value in np.ravel(list_of(one))])
    return np.array(flat, np.float32)


def list_of(value):
    return list(value.values()) if isinstance(value, dict) else value


def joined(batches, part=0):
    return np.concatenate([batch[part].numpy() for batch in batches])


def test_x_is_all_numbers_side_by_side(path):
    data = bt.load(path)
    batches = data.keras(label="fare", columns=NUMBERS, defaults=PLACED)
    assert batches.element_spec == (
        tf.TensorSpec([None, 13], tf.float32),
        tf.TensorSpec([None], tf.float32),
    )
    table = data.arrow()
    np.testing.assert_array_equal(joined(batches), numbers_of(table, NUMBERS))
    np.testing.assert_array_equal(joined(batches, 1), table["fare"].to_numpy())
    assert [len(x) for x, _ in batches] == [32, 32, 6]
    assert batches.feature_names == [
        *("km", "stops", "exact", "price", "paid", "pair[0]", "pair[1]"),
        *("grid[0,0]", "grid[0,1]", "grid[1,0]", "grid[1,1]", "place/x", "place/y"),
    ]


def test_the_columns_are_in_the_order_that_is_asked_for(path):
    data = bt.load(path)
    x = joined(data.keras(label="fare", columns=["stops", "fare", "pair", "km"]))
    np.testing.assert_array_equal(x, numbers_of(data.arrow(), ["stops", "pair", "km"]))


def test_a_sequential_model_fits_and_predicts(path):
    data = bt.load(path)
    batches = data.keras(
        label="fare", columns=NUMBERS, defaults=PLACED, weight="share", shuffle=True, seed=1
    )
    scale = keras.layers.Normalization()
    scale.adapt(batches.map(lambda x, y, weight: x))
    model = keras.Sequential([scale, keras.layers.Dense(4, "relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    history = model.fit(batches, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert model.predict(data.keras(columns=NUMBERS, defaults=PLACED), verbose=0).shape == (ROWS, 1)


def test_the_weights_are_those_of_the_rows(path):
    data = bt.load(path)
    batches = data.keras(label="fare", columns=["km"], weight="share")
    np.testing.assert_array_equal(joined(batches, 2), data.arrow()["share"].to_numpy())
    assert batches.feature_names == ["km"]
    (x, y, weight) = next(iter(batches))
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    error = (model(x)[:, 0] - y) ** 2
    expected = float(tf.reduce_mean(error * weight))
    assert model.evaluate(batches.take(1), verbose=0) == pytest.approx(expected, rel=1e-5)


def test_the_label_and_the_weight_are_not_in_x(path):
    data = bt.load(path, columns=["km", "stops", "share", "fare"])
    batches = data.keras(label=["fare", "stops"], weight="share")
    assert batches.feature_names == ["km"]
    _, y, _ = next(iter(batches))
    assert sorted(y) == ["fare", "stops"]
    assert y["stops"].dtype == tf.int64


def test_a_dict_has_the_values_of_the_columns(path):
    data = bt.load(path)
    rows = data.arrow().slice(0, 40).to_pylist()
    (x,) = data.keras(40, stack=False, nulls="mask", defaults={"note": "none", **PLACED}).take(1)
    assert x["stops"].numpy().tolist() == [row["stops"] for row in rows]
    assert (x["stops"].dtype, x["exact"].dtype) == (tf.int64, tf.float32)
    assert x["place/y"].numpy().tolist() == [row["place"]["y"] for row in rows]
    assert x["grid"].numpy().tolist() == [row["grid"] for row in rows]
    assert [value.decode() for value in x["city"].numpy()] == [row["city"] for row in rows]
    assert [value.decode() for value in x["note"].numpy()] == [
        row["note"] or "none" for row in rows
    ]
    assert x["seats"].numpy().tolist() == [row["seats"] or 0 for row in rows]
    assert x["seats_mask"].numpy().tolist() == [row["seats"] is not None for row in rows]
    # Microseconds since 1970.
    assert set(x["start"].numpy().tolist()) == {1_767_225_600_000_000}
    for name, end in (("codes", 0), ("tags", b"")):
        lists = [[one.encode() if name == "tags" else one for one in row[name]] for row in rows]
        longest = max(map(len, lists))
        assert x[name].numpy().tolist() == [one + [end] * (longest - len(one)) for one in lists]
        there = [[k < len(one) for k in range(longest)] for one in lists]
        assert x[f"{name}_mask"].numpy().tolist() == there


def test_missing_numbers_are_replaced_or_masked_also_where_a_batch_has_none(path):
    data = bt.load(path)
    seats = data.arrow()["seats"].to_pylist()
    assert None in seats
    by_value = joined(data.keras(label="fare", columns=["seats"], defaults={"seats": -1}))
    assert by_value[:, 0].tolist() == [-1 if seat is None else seat for seat in seats]
    masked = data.keras(2, label="fare", columns=["seats", "km"], nulls="mask")
    assert masked.feature_names == ["seats", "seats_mask", "km"]
    found = joined(masked)
    assert found[:, 0].tolist() == [seat or 0 for seat in seats]
    assert found[:, 1].tolist() == [float(seat is not None) for seat in seats]
    # Some batch of two rows has no value at all.
    assert any(not x[:, 1].numpy().any() for x, _ in masked)


def test_missing_lists_of_a_fixed_size_are_masked(tmp_path):
    pairs = [[1.0, 2.0] if row % 3 == 0 else None for row in range(9)]
    rows = [{"pair": pair, "y": 1} for pair in pairs]
    source = write_parquet(tmp_path / "in", pa.table({"row": pa.array(range(9))}))
    schema = bt.Schema((bt.Feature("pair", VOTE_PAIR), bt.Feature("y", "int64")))
    bt.write(
        source, tmp_path / "out", map=lambda row: rows[row["row"]], schema=schema, shuffle=False
    )
    found = joined(bt.load(tmp_path / "out").keras(2, label="y", nulls="mask"))
    assert found.tolist() == [[*(pair or [0, 0]), float(pair is not None)] for pair in pairs]


VOTE_PAIR = pa.list_(pa.float32(), 2)


def test_a_single_column_keeps_its_shape(path):
    data = bt.load(path)
    rows = data.arrow().to_pylist()
    grids = data.keras(label="fare", columns="grid")
    assert grids.element_spec[0] == tf.TensorSpec([None, 2, 2], tf.int64)
    assert joined(grids).tolist() == [row["grid"] for row in rows]
    assert grids.feature_names == ["grid"]
    texts = data.keras(label="fare", columns="city")
    assert [text.decode() for text in joined(texts)] == [row["city"] for row in rows]
    tags = next(iter(data.keras(label="fare", columns="tags")))[0]
    assert tags.numpy()[:, 0].tolist() == [(row["tags"] or [""])[0].encode() for row in rows[:32]]
    with pytest.raises(UsageError, match=r"'place' has the parts place/x, place/y: pass a list"):
        data.keras(label="fare", columns="place", defaults=PLACED)


def test_text_with_known_categories_becomes_numbers(path):
    data = bt.load(path)
    expected = [CITIES.index(city) for city in data.arrow()["city"].to_pylist()]
    batches = data.keras(label="city", columns=["km"], categories={"city": CITIES})
    assert batches.element_spec[1] == tf.TensorSpec([None], tf.int64)
    assert joined(batches, 1).tolist() == expected
    assert batches.class_names == CITIES
    as_input = data.keras(columns=["city", "km"], categories={"city": CITIES})
    assert np.concatenate(list(as_input))[:, 0].tolist() == expected
    both = {"city": CITIES, "tags": WORDS}
    (x,) = data.keras(ROWS, columns=["tags"], stack=False, categories={"tags": WORDS})
    tags = data.arrow()["tags"].to_pylist()
    found = [
        row[mask].tolist() for row, mask in zip(x["tags"].numpy(), x["tags_mask"], strict=True)
    ]
    assert found == [[WORDS.index(tag) for tag in row] for row in tags]
    with pytest.raises(UsageError, match="categories has 'tags', which is not read"):
        data.keras(label="city", columns=["km"], categories=both)
    few = data.keras(label="city", columns=["km"], categories={"city": CITIES[:2]})
    with pytest.raises(tf.errors.UnknownError, match="column 'city' has 'Graz', which is not one"):
        list(few)


@pytest.mark.slow
def test_vectors_as_labels_train_a_categorical_model(path):
    data = bt.load(path)
    batches = data.keras(label="vote", columns=["km", "stops"])
    np.testing.assert_array_equal(joined(batches, 1), numbers_of(data.arrow(), ["vote"]))
    model = keras.Sequential([keras.layers.Dense(3, "softmax")])
    model.compile("adam", "categorical_crossentropy")
    history = model.fit(batches, class_weight=data.class_weight("vote"), verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"defaults": PLACED},
            "columns 'tip', 'seats', 'note' have values that may be missing: pass defaults={",
        ),
        (
            {"columns": ["tip"]},
            "column 'tip' has values that may be missing: pass defaults={'tip': …}, or nul",
        ),
        ({"columns": ["place"]}, "may be missing: pass defaults={'place': {'x': …}}, or nulls="),
        (
            {"columns": "tip", "nulls": "mask"},
            "column 'tip' has values that may be missing: pass defaults=",
        ),
        ({"nulls": "mask"}, "columns 'city', 'note', 'tags' have text: write numbers with --step"),
        ({"columns": ["raw"]}, "column 'raw' has bytes: leave them out with columns="),
        ({"columns": ["codes", "km"]}, "column 'codes' has lists of varying length: leave them"),
        ({"columns": ["start", "km"]}, "column 'start' has times: leave them out with columns="),
        ({"columns": ["fare"]}, "no column is left for x: choose one that is neither label nor"),
        ({"label": "city"}, "label 'city' is text without known categories: pass categories={'ci"),
        ({"label": "tags"}, "label 'tags' has lists of varying length: use tf() and its map()"),
        (
            {"label": "place"},
            "label 'place' has the parts place/x, place/y: use tf() and its map()",
        ),
        ({"label": "start"}, "label 'start' is a time: write the number to learn with --map"),
        ({"label": "tip"}, "label 'tip' has 40 missing values: pass defaults={'tip': …}"),
        ({"weight": "city"}, "weight 'city' is string: choose a column of numbers"),
        ({"weight": "pair"}, "weight 'pair' is fixed_size_list<"),
        ({"weight": "km", "label": None}, "weight 'km' without a label has no effect"),
        ({"weight": "fare"}, "weight 'fare' is a label, too: choose another column"),
        ({"categories": {"city": "Rome"}}, "categories of 'city' is 'Rome': pass a list of"),
        ({"categories": {"city": 3}}, "categories of 'city' is 3: pass a list of texts"),
        ({"categories": {"city": []}}, "categories of 'city' has no texts: pass at least one"),
        ({"categories": {"city": ["a", 1]}}, "has 1, which is no text: leave it out, and choose"),
        ({"categories": {"city": ["a", None]}}, "has None, which is no text: leave it out"),
        ({"categories": {"city": ["a", "a"]}}, "categories of 'city' has 'a' twice: pass each"),
        ({"categories": ["city"]}, "categories is ['city']: pass a dict by column"),
        ({"nulls": "zero"}, "nulls 'zero' is neither a number nor 'mask'"),
        ({"batch_size": None}, "keras() needs a batch_size: single rows are for tf()"),
        ({"columns": ["away"]}, "column 'away' is not in the schema: the columns are km, stops"),
    ],
)
def test_what_x_and_y_cannot_have_is_refused_in_one_line(path, options, message):
    with pytest.raises(UsageError) as raised:
        bt.load(path).keras(**{"label": "fare", "columns": None, **options})
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_mask_does_not_take_the_name_of_a_column(tmp_path):
    table = pa.table({"a": pa.array([1, None]), "a_mask": [1, 2], "y": [0, 1]})
    bt.write(write_parquet(tmp_path / "in", table), tmp_path / "out")
    with pytest.raises(UsageError, match="the mask of 'a' has the name of column 'a_mask'"):
        bt.load(tmp_path / "out").keras(label="y", nulls="mask")


@pytest.mark.slow
def test_class_weights_are_those_of_scikit_learn(path):
    from sklearn.utils.class_weight import compute_class_weight as balanced

    data = bt.load(path)
    table = data.arrow()
    for name in ("stops", "paid"):
        classes = np.unique(table[name].to_numpy())
        expected = balanced("balanced", classes=classes, y=table[name].to_numpy())
        assert data.class_weight(name) == pytest.approx(
            dict(zip(classes.astype(int).tolist(), expected.tolist(), strict=True))
        )
    cities = np.array([CITIES.index(city) for city in table["city"].to_pylist()])
    expected = balanced("balanced", classes=np.arange(3), y=cities)
    found = data.class_weight("city", categories={"city": CITIES})
    assert found == pytest.approx(dict(enumerate(expected.tolist())))
    votes = np.array(table["vote"].to_pylist()).argmax(1)
    expected = balanced("balanced", classes=np.arange(3), y=votes)
    assert data.class_weight("vote") == pytest.approx(dict(enumerate(expected.tolist())))
    seats = np.array([-1 if seat is None else seat for seat in table["seats"].to_pylist()])
    expected = balanced("balanced", classes=np.unique(seats), y=seats)
    found = data.class_weight("seats", defaults={"seats": -1})
    assert list(found.values()) == pytest.approx(expected.tolist())


def test_a_column_without_classes_has_no_class_weights(path):
    data = bt.load(path)
    for name, message in (
        ("fare", "label 'fare' is float, which has no classes"),
        ("seats", "label 'seats' has 40 missing values: pass defaults={'seats': …}"),
        ("city", "label 'city' is text without known categories"),
    ):
        with pytest.raises(UsageError, match=message.replace("{", r"\{")):
            data.class_weight(name)
    with pytest.raises(DataError, match="column 'city' has 'Graz', which is not one of its cat"):
        data.class_weight("city", categories={"city": CITIES[:2]})


@pytest.mark.slow
def test_x_is_the_picture_of_a_dataset_of_images(tmp_path):
    rng = np.random.default_rng(5)
    for number in range(6):
        folder = tmp_path / "photos" / ("cat", "dog")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (8 + number, 9, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    bt.write(tmp_path / "photos", tmp_path / "out")
    data = bt.load(tmp_path / "out")
    with pytest.raises(UsageError, match=r"pass image_size=\(height, width\)"):
        data.keras(label="label")
    # Another column needs no pictures of one size.
    assert data.keras(label="label", columns=["width"]).feature_names == ["width"]
    batches = data.keras(4, label="label", image_size=(8, 9))
    assert batches.element_spec[0] == tf.TensorSpec([None, 8, 9, 3], tf.float32)
    assert batches.class_names == ["cat", "dog"]
    expected = []
    for row in data.arrow().to_pylist():
        pixels = np.asarray(Image.open(io.BytesIO(row["image"])), np.float32)
        expected.append(tf.image.resize(pixels, (8, 9)).numpy())
    np.testing.assert_allclose(joined(batches), expected, atol=1e-3)
    assert joined(batches, 1).tolist() == data.arrow()["label"].to_pylist()
    model = keras.Sequential(
        [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(2, "softmax")]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    assert np.isfinite(model.fit(batches, verbose=0).history["loss"]).all()
    (x, _) = next(iter(data.keras(6, label="label", image_size=(8, 9), stack=False)))
    assert x["image"].shape == (6, 8, 9, 3)
    assert x["width"].numpy().tolist() == [9] * 6
