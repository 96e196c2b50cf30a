"""Rows of all kinds of columns, and what TensorFlow Datasets reads at each key of an example."""

import io
import json
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from tests.helpers.records import read_records
from tests.helpers.tf_example import Example

ROWS = 60
TYPES = [f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)]
LISTS = ("list", "words", "boxes")


def plain(value):
    """Return an array or a number of NumPy as Python has it."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def columns():
    """Return columns of all kinds, and what is read of each of their values."""
    n, x = range(ROWS), np.random.default_rng(0).normal(size=ROWS)
    x[0] = np.nan
    pixels = [np.full((1 + i % 3, 4, 3), i, np.uint8) for i in n]
    lists = [[*range(i % 4)] for i in n]
    texts = [("", "é", "a\0")[i % 3] for i in n]
    words = [texts[i : i + i % 3] for i in n]
    boxes = [[[i, j, 0.5, 1.5] for j in range(i % 3)] for i in n]
    raw = [bytes([255, i]) for i in n]
    images = [_png(array) for array in pixels]
    times = [10**15 + i for i in n]
    pairs = [[i, 0.5] for i in n]
    return {
        **{type: (pa.array(n, type), [*n]) for type in TYPES},
        **{type: (pa.array(x.astype(type)), x.astype(type)) for type in ("float16", "float32")},
        "float64": (pa.array(x), x.astype(np.float32)),
        "bool": (pa.array([i % 2 > 0 for i in n]), [i % 2 > 0 for i in n]),
        "decimal": (pa.array([Decimal(i) / 4 for i in n]), [i / 4 for i in n]),
        "odd, näme": (pa.array(texts), [text.encode() for text in texts]),
        "bytes": (pa.array(raw), raw),
        "date": (pa.array(n, pa.int32()).cast(pa.date32()), [*n]),
        "time": (pa.array(times, pa.timestamp("ns", "UTC")), times),
        "list": (pa.array(lists, pa.list_(pa.int16())), lists),
        "words": (pa.array(words), [[text.encode() for text in of] for of in words]),
        "pair": (pa.array(pairs, pa.list_(pa.float32(), 2)), pairs),
        "boxes": (pa.array(boxes, pa.list_(pa.list_(pa.float32(), 4))), boxes),
        "image": (pa.array(images), pixels),
    }


def _png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def table():
    """Return a table of these columns, each also with nulls, and the values at each key."""
    n, is_null = range(ROWS), pa.array([i % 3 == 1 for i in range(ROWS)])
    rows, expected = {"id": pa.array(n)}, {"id": [*n]}
    for name, (array, values) in columns().items():
        rows[name], expected[name] = array, [*map(plain, values)]
        rows[f"{name}?"] = pc.if_else(is_null, None, array)
        listed = [of if name in LISTS else [of] for of in expected[name]]
        expected[f"{name}?"] = [[] if i % 3 == 1 else of for i, of in enumerate(listed)]
    rows["at"] = pa.array([{"x": i, "in": [*range(i % 4)]} for i in n])
    expected |= {"at/x": [[i] for i in n], "at/in": [[*range(i % 4)] for i in n]}
    pairs = [[(f"{j}", j) for j in range(i % 3)] for i in n]
    rows["map"] = pa.array(pairs, pa.map_("string", "int64"))
    expected["map/key"] = [[key.encode() for key, _ in row] for row in pairs]
    expected["map/value"] = [[value for _, value in row] for row in pairs]
    rows["deep"] = pa.array([[[i], [*range(i % 4)]] for i in n])
    expected["deep"] = [None] * ROWS
    return pa.table(rows), expected


def arrays():
    """Return arrays of NumPy of all types, of which each row is what is read."""
    types = (*TYPES, "bool", "float16", "float32", "float64", "complex64", "complex128")
    numbers = np.arange(6 * ROWS).reshape(-1, 2, 3)
    return {"id": np.arange(ROWS), **{type: numbers.astype(type) for type in types}}


def python_rows():
    """Return rows with class numbers, and arrays of which one size varies, and their columns."""
    n = range(ROWS)
    opened = [np.full((i % 3, 4), i) for i in n]
    found = {"id": [*n], "label": [i % 2 for i in n], "open": opened}
    found["open?"] = [None if i % 4 == 3 else of for i, of in enumerate(opened)]
    rows = [{name: of[i] for name, of in found.items()} for i in n]
    return rows, {**found, "open?": [[] if of is None else [plain(of)] for of in found["open?"]]}


def value_of(feature, values):
    """Return the value of one key of an example, as a class of TensorFlow Datasets reads it."""
    (kind,) = feature.keys() - {"pythonClassName", "description"}
    if kind == "sequence":
        inner = feature[kind]["feature"]
        size = 1 if inner.get("tensor", {}).get("encoding") != "none" else math.prod(sizes(inner))
        parts = [values[at : at + size] for at in range(0, len(values), size)]
        return [plain(value_of(inner, part)) for part in parts]
    if kind == "tensor" and feature[kind]["encoding"] == "bytes":
        values = np.frombuffer(values[0], feature[kind]["dtype"])
    if kind == "image":
        return np.asarray(Image.open(io.BytesIO(values[0])))
    if kind != "tensor" or feature[kind]["dtype"] == "string":
        return values[0]
    return np.array(values, feature[kind]["dtype"]).reshape(sizes(feature))


def sizes(feature):
    return [int(size) for size in feature["tensor"]["shape"]["dimensions"]]


def compare(directory, expected, left_out):
    """Compare all values that the files of TensorFlow Datasets lead to."""
    features = json.loads((directory / "features.json").read_text())["featuresDict"]["features"]
    assert features.keys() == expected.keys() - left_out
    for split in json.loads((directory / "dataset_info.json").read_text())["splits"]:
        count = len(split["shardLengths"])
        for number, length in enumerate(split["shardLengths"]):
            parts = {"SPLIT": split["name"], "FILEFORMAT": "tfrecord"}
            place = f"{number:05d}-of-{count:05d}"
            file = directory / split["filepathTemplate"].format(**parts, SHARD_X_OF_Y=place)
            read = [Example.FromString(payload).features.feature for payload in read_records(file)]
            assert len(read) == int(length)
            for example in read:
                row = {}
                for key, feature in features.items():
                    kind = example[key].WhichOneof("kind") if key in example else None
                    values = list(getattr(example[key], kind).value) if kind else []
                    row[key] = plain(value_of(feature, values))
                for key, value in row.items():
                    np.testing.assert_equal(value, plain(expected[key][row["id"]]), key)
