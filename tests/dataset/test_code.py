"""Generated code: it is run, and must give what the dataset holds."""

import dataclasses
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

import beam_tfrecord as bt
from beam_tfrecord.cli.main import cli
from beam_tfrecord.errors import UsageError
from beam_tfrecord.frameworks.reading_programs import reading_code
from tests.helpers.made_datasets import make_dataset, write_examples
from tests.sources.made_images import jpeg

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


def test_a_program_for_tables_does_not_learn_from_the_names_of_images(tmp_path):
    for number in range(4):
        (tmp_path / f"in/{number % 2}").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"in/{number % 2}/{number}.jpg").write_bytes(jpeg(number))
    bt.write(tmp_path / "in", tmp_path / "out")
    words = ["show", str(tmp_path / "out"), "--label"]
    ran = CliRunner().invoke(cli, [*words, "label", "--code", "torch"])
    assert ran.exit_code
    assert "'image' has images, and this program is for tables: use --code keras" in ran.output
    ran = CliRunner().invoke(cli, [*words, "format", "--code", "keras"])
    assert ran.exit_code
    assert "no integers number the classes of 'image': pass --label" in ran.output


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


@pytest.mark.xdist_group("tensorflow")
@pytest.mark.parametrize("misses", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_keras_code_learns_classes_of_images(tmp_path, misses):
    images = [jpeg(row, width=20 + row) for row in range(ROWS)]
    labels = [row % 3 for row in range(ROWS)]
    if misses:
        images[2] = labels[5] = None
    table = pa.table({"image": pa.array(images, pa.binary()), "label": labels})
    bt.write(table, tmp_path / "out", shuffle=False, compression="gzip" if misses else None)
    ran = CliRunner().invoke(cli, ["show", str(tmp_path / "out"), "--code", "keras"])
    found = executed_keras_code(ran.output)
    assert np.isfinite(found["model"].history.history["loss"]).all()
    kept = table.take([row for row in range(ROWS) if not misses or row not in (2, 5)])
    bt.write(kept, tmp_path / "kept", shuffle=False)
    ((pixels, classes),) = found["read"]("data")
    ((expected, known),) = bt.load(tmp_path / "kept").tf(32, image_size=(64, 64), label="label")
    assert classes.numpy().tolist() == known.numpy().tolist()
    assert np.allclose(pixels, expected, atol=1e-3)


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


VARIED = pa.table(
    {
        "id": [7 * row for row in range(200)],
        "many": [row % 90 for row in range(200)],
        "city": [("Oslo", "Rome", None)[row % 3] for row in range(200)],
        "note": [f"n{row}" for row in range(200)],
        "day": pa.array([None if row == 1 else 20_000 + row for row in range(200)], pa.date32()),
        "at": pa.array([3_600_000 * row for row in range(200)], pa.timestamp("ms")),
        "x": [None if row == 3 else row / 4 for row in range(200)],
        "label": [int(row % 4 == 0) for row in range(200)],
    }
)
LEARNED_FROM = np.array(
    [
        (row % 90, row % 3 == 0, row % 3 == 1, row * (row != 1), row / 24, row / 4 * (row != 3))
        for row in range(200)
    ],
    np.float32,
)


def varied_code(path, *flags):
    bt.write(VARIED, path, shuffle=False)
    ran = CliRunner().invoke(cli, ["show", str(path), "--code", *flags])
    assert (
        "Nearly all values differ, so left out: id. Not numeric, so left out: note." in ran.output
    )
    return ran.output


@pytest.mark.xdist_group("tensorflow")
def test_keras_code_leaves_out_identifiers_and_reads_times_and_categories(tmp_path, capsys):
    found = executed_keras_code(varied_code(tmp_path / "out", "keras"))
    assert "75.0% of the labels are the most frequent one" in capsys.readouterr().out
    assert found["INPUTS"] == ["many", "city", "day", "at", "x"]
    inputs = np.concatenate([inputs.numpy() for inputs, _ in found["read"]("data")])
    assert np.allclose(inputs, LEARNED_FROM)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["label", "city", "x"])
def test_torch_code_trains_on_the_same_inputs_if_there_is_a_label(tmp_path, label):
    code = varied_code(tmp_path / "out", "torch", "--label", label)
    code += f"""
import pickle
found = [torch.cat(of).numpy() for of in zip(*batches("data"))]
pathlib.Path({str(tmp_path / "found")!r}).write_bytes(pickle.dumps(found))
"""
    # A process of its own: TensorFlow and tfrecord both define tf.train.Example.
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert re.search(r"^(accuracy \d+\.\d%|mean absolute error \d)", ran.stdout, re.MULTILINE)
    values = [{"Oslo": 1, "Rome": 2}.get(value, value) for value in VARIED[label].to_pylist()]
    has_label = [value is not None for value in values]
    inputs, labels = pickle.loads((tmp_path / "found").read_bytes())
    assert labels.tolist() == [value for value in values if value is not None]
    own = {"label": [], "city": [1, 2], "x": [5]}[label]
    expected = np.delete(LEARNED_FROM, own, axis=1)[has_label]
    assert np.allclose(inputs[:, : expected.shape[1]], expected)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.slow
def test_torch_code_reads_every_row(tmp_path, compression):
    grid = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6.0 * ROWS).reshape(-1, 2, 3))
    table = TABLE.append_column("grid", grid)
    manifest = make_dataset(tmp_path, table, splits=SPLITS, compression=compression)
    code = reading_code(manifest, "torch", tmp_path, label="label")
    # A process of its own: TensorFlow and tfrecord both define tf.train.Example.
    code += f"""
import pickle
rows = list(Examples("train"))
pathlib.Path({str(tmp_path / "found")!r}).write_bytes(pickle.dumps((rows, collate(rows))))
"""
    ran = [sys.executable, "-c", code]
    printed = subprocess.run(ran, check=True, capture_output=True, text=True).stdout
    rows, batch = pickle.loads((tmp_path / "found").read_bytes())
    assert re.search(r"^id torch\.int64 \(9,\)$", printed, re.MULTILINE)
    assert "name list of 9\n" in printed
    assert [row["id"] for row in rows] == [0, -1, -2, -3, -4, -5, -6, -7, -8]
    assert rows[4]["name"] == "ñ4"
    assert rows[5]["name"] is None
    assert np.isnan(rows[3]["x"])
    assert rows[4]["x"] == 1.0
    assert rows[2]["raw"] == b"\xff"
    assert rows[2]["tags"].tolist() == [0, 1]
    batch, label = batch
    assert label.tolist() == [0, 1] * 4 + [0]
    assert "label" not in batch
    assert rows[1]["grid"].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert batch["name"][:2] == ["ñ0", "ñ1"]


def test_code_needs_examples_and_a_known_kind(tmp_path):
    manifest = make_dataset(tmp_path / "a", TABLE.select(["id", "name"]))
    with pytest.raises(UsageError, match="no code for 'jax': choose one of tf, keras, torch"):
        reading_code(manifest, "jax", tmp_path)
    with pytest.raises(UsageError, match="no column of numbers is there as input: use --c"):
        reading_code(manifest, "keras", tmp_path)
    with pytest.raises(UsageError, match="is for --code keras"):
        reading_code(manifest, "tf", tmp_path, label="id")
    with pytest.raises(UsageError, match="label 'no' is no column of single values: choose one of"):
        reading_code(manifest, "torch", tmp_path, label="no")
    empty = write_examples(tmp_path / "b", {"data": []}, manifest.schema)
    with pytest.raises(UsageError, match="has no examples"):
        reading_code(empty, "tf", tmp_path)
