"""Generated code: it is run, and must give what the dataset holds."""

import ast
import dataclasses
import re
import warnings

import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.frameworks.reading_programs import feature_lines, reading_code
from tests.helpers.made_datasets import make_dataset, write_examples
from tests.helpers.records import example

ROWS = 12
TABLE = pa.table(
    {
        "id": pa.array([-row for row in range(ROWS)], pa.int64()),
        "x": pa.array([None if row == 3 else row / 4 for row in range(ROWS)], pa.float32()),
        "name": pa.array([None if row == 5 else f"ñ{row}" for row in range(ROWS)]),
        "raw": pa.array([b"\xff"] * ROWS),
        "tags": pa.array([list(range(row % 3)) for row in range(ROWS)], pa.list_(pa.int64())),
        "label": pa.array([row % 2 for row in range(ROWS)], pa.int32()),
    }
)
SPLITS = {"train": list(range(9)), "test": [9, 10, 11]}


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.xdist_group("tensorflow")
def test_tf_code_runs_and_reads_every_row(tmp_path, compression, capsys):
    manifest = make_dataset(tmp_path, TABLE, splits=SPLITS, compression=compression)
    code = reading_code(manifest, "tf", tmp_path)
    assert "beam_tfrecord" not in code.replace(str(tmp_path), "")
    found = {}
    exec(compile(code, "tf_code", "exec"), found)
    printed = capsys.readouterr().out.splitlines()
    assert "id int64 (9,)" in printed
    assert "tags int64 (9, None)" in printed
    assert len(printed) == len(TABLE.column_names)
    (batch,) = found["read"]("train")
    assert batch["id"].numpy().tolist() == [0, -1, -2, -3, -4, -5, -6, -7, -8]
    assert batch["tags"].to_list()[:3] == [[], [0], [0, 1]]
    assert batch["name"].values.numpy()[0].decode() == "ñ0"
    assert [len(batch["id"]) for batch in found["read"]("test", 2)] == [2, 1]


@pytest.mark.xdist_group("tensorflow")
def test_the_feature_spec_in_the_code_is_that_of_the_schema():
    import tensorflow as tf

    schema = Schema(
        (
            Feature("a", "int64", nullable=False),
            Feature("b", "float"),
            Feature("c", "float", default=0.5),
            Feature("d", "text", default='quote " and \\ and é'),
            Feature("e", pa.list_(pa.int64())),
            Feature("f", pa.list_(pa.list_(pa.list_(pa.string())))),
            Feature("g", pa.list_(pa.float32(), 3), nullable=False),
            Feature("h", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64()))])),
            Feature("i", pa.map_(pa.string(), pa.int64())),
            Feature("j", pa.fixed_shape_tensor(pa.uint8(), (2, 3)), nullable=False),
            Feature("k", "bool", default=True),
            Feature("l", "double", store="bytes"),
            Feature("m", "timestamp"),
        )
    )
    literal = eval("{" + feature_lines(schema) + "}", {"tf": tf})
    assert literal == schema.feature_spec()


def test_the_model_suits_the_label(tmp_path):
    table = TABLE.set_column(0, "id", pa.array([row % 5 for row in range(ROWS)]))
    manifest = make_dataset(tmp_path, table)

    def code(label):
        return reading_code(manifest, "keras", tmp_path, label=label)

    assert 'Dense(5, activation="softmax")' in code("id")
    assert "sparse_categorical_crossentropy" in code("id")
    assert "Dense(1),\n" in code("x")
    assert '"mse"' in code("x")
    assert "Dense(classes.vocabulary_size()" in code("name")
    with pytest.raises(UsageError, match="label 'tags' is no column of numbers or text: choose"):
        code("tags")


def executed_keras_code(code):
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, "keras_code", "exec"), found)
    return found


VECTOR = pa.list_(pa.float32(), 3)


def labelled(path, **labels):
    """Write a dataset with vectors, whose columns `labels` have class names."""
    table = TABLE.append_column("class_vector", pa.array([[0.0, 1.0, 0.0]] * ROWS, VECTOR))
    table = table.append_column("sort", pa.array([["b", "a"][row % 2] for row in range(ROWS)]))
    manifest = make_dataset(path, table, splits=SPLITS)
    schema = manifest.schema
    named = {name: dataclasses.replace(schema[name], labels=of) for name, of in labels.items()}
    return dataclasses.replace(manifest, schema=schema.edit(**named))


def test_the_label_is_the_column_with_class_names(tmp_path):
    manifest = labelled(tmp_path, id=("a", "b"))
    assert 'LABEL = "id"\n' in reading_code(manifest, "keras", tmp_path)


def test_the_name_of_a_column_decides_among_several_with_class_names(tmp_path):
    manifest = labelled(tmp_path, id=("a", "b"), x=("a", "b"))
    assert 'LABEL = "label"\n' in reading_code(manifest, "keras", tmp_path)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("label", ["name", "x", "sort", "class_vector"])
@pytest.mark.xdist_group("tensorflow")
def test_every_kind_of_label_is_learned(tmp_path, label):
    """Text and numbers, some of them missing, and a one-hot vector."""
    manifest = labelled(tmp_path, class_vector=("a", "b", "c"))
    found = executed_keras_code(reading_code(manifest, "keras", tmp_path, label=label))
    history = found["model"].history.history
    assert all(np.isfinite(values).all() for values in history.values())
    assert history["val_loss"]
    batches = list(found["read"]("train", 2))
    assert all(len(y) for _, y in batches)
    values = TABLE[label].to_pylist() if label in TABLE.column_names else [label] * ROWS
    present = [row for row in SPLITS["train"] if values[row] is not None]
    inputs = np.concatenate([inputs.numpy() for inputs, _ in batches])
    assert inputs[:, found["INPUTS"].index("id")].tolist() == [-row for row in present]
    wide = 3 * ("class_vector" in found["INPUTS"])
    assert inputs.shape[1] == len(set(found["INPUTS"]) - {"class_vector"}) + wide
    if label in TABLE.column_names:
        learned = [value for _, y in batches for value in y.numpy().tolist()]
        texts = [value.decode() if label == "name" else value for value in learned]
        assert texts == [values[row] for row in present]


def _executed_torch_code(code):
    found = {}
    exec(compile(code, "torch_code", "exec"), found)
    return found


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.slow
def test_torch_code_reads_every_row(tmp_path, compression, capsys):
    manifest = make_dataset(tmp_path, TABLE, splits=SPLITS, compression=compression)
    found = _executed_torch_code(reading_code(manifest, "torch", tmp_path))
    printed = capsys.readouterr().out
    assert re.search(r"^id torch\.int64 \(9,\)$", printed, re.MULTILINE)
    assert "name list of 9\n" in printed
    rows = list(found["Examples"]("train"))
    assert [row["id"] for row in rows] == [0, -1, -2, -3, -4, -5, -6, -7, -8]
    assert rows[4]["name"] == "ñ4"
    assert rows[5]["name"] is None
    assert np.isnan(rows[3]["x"])
    assert rows[4]["x"] == 1.0
    assert rows[2]["raw"] == b"\xff"
    assert rows[2]["tags"].tolist() == [0, 1]
    batch = found["collate"](rows)
    assert batch["label"].tolist() == [0, 1] * 4 + [0]
    assert batch["name"][:2] == ["ñ0", "ñ1"]


def test_the_torch_code_parses_every_kind_of_feature(tmp_path):
    pytest.importorskip("tfrecord")
    tree = ast.parse(reading_code(make_dataset(tmp_path, TABLE), "torch", tmp_path))
    wanted = {"Example", "DTYPES", "parse"}
    tree.body = [node for node in tree.body if wanted & _names_of(node)]
    found = {"np": np}
    exec(compile(tree, "parser", "exec"), found)
    integers = [0, -1, 2**63 - 1, -(2**63), 300]
    floats = [0.5, float("inf"), -0.0]
    row = found["parse"](example(n=integers, f=floats, b=[b"", b"\xff\0"], none=[]))
    assert row["n"].tolist() == integers
    assert row["f"].tolist() == floats
    assert row["b"] == [b"", b"\xff\0"]


def _names_of(node):
    names = {alias.name for alias in getattr(node, "names", ())}
    names |= {target.id for target in getattr(node, "targets", ())}
    return names | {getattr(node, "name", "")}


def test_code_needs_examples_and_a_known_kind(tmp_path):
    manifest = make_dataset(tmp_path / "a", TABLE.select(["id", "name"]))
    with pytest.raises(UsageError, match="no code for 'jax': choose one of tf, keras, torch"):
        reading_code(manifest, "jax", tmp_path)
    with pytest.raises(UsageError, match="no column of numbers is there as input: use --c"):
        reading_code(manifest, "keras", tmp_path)
    with pytest.raises(UsageError, match="is for --code keras"):
        reading_code(manifest, "tf", tmp_path, label="id")
    empty = write_examples(tmp_path / "b", {"data": []}, manifest.schema)
    with pytest.raises(UsageError, match="has no examples"):
        reading_code(empty, "tf", tmp_path)
