"""`load`: every form in which rows come back, and what is checked on the way."""

import datetime
import inspect
import os
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.dataset.load import load
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from tests.helpers.made_datasets import make_dataset, write_examples

ROWS = 10
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "x": pa.array([None if row == 3 else row / 4 for row in range(ROWS)], pa.float32()),
        "name": pa.array([None if row == 5 else f"n{row}" for row in range(ROWS)]),
        "tags": pa.array([list(range(row % 3)) for row in range(ROWS)], pa.list_(pa.int64())),
        "pair": pa.array([[row, row + 0.5] for row in range(ROWS)], pa.list_(pa.float32(), 2)),
        "at": pa.array([None, *range(1, ROWS)], pa.timestamp("us")),
        "label": pa.array([row % 2 for row in range(ROWS)], pa.int32()),
    }
)
SPLITS = {"train": range(7), "test": range(7, ROWS)}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dataset")
    make_dataset(directory, TABLE, splits=SPLITS)
    return directory


@pytest.fixture
def own(tmp_path):
    """Return a dataset that a test may damage."""
    make_dataset(tmp_path, TABLE, splits=SPLITS)
    return tmp_path


def test_all_splits_come_in_order_and_one_split_alone(path):
    assert list(load(path).rows()) == TABLE.to_pylist()
    assert load(path).splits == {"train": 7, "test": 3}
    assert len(load(path)) == 10
    test = load(path, split="test")
    assert (test.splits, len(test)) == ({"test": 3}, 3)
    assert list(test.rows()) == TABLE.slice(7).to_pylist()
    assert test.manifest.examples == 10


@pytest.mark.parametrize("name", ["tf", "keras", "torch", "grain"])
def test_help_and_errors_of_calls_say_the_public_name_and_all_arguments(path, name):
    method = getattr(load(path, split="test"), name)
    with pytest.raises(TypeError, match=rf"^Dataset\.{name}\(\) got"):
        method(batchsize=3)
    described = re.findall(r"^    (\w+): ", inspect.getdoc(method), re.MULTILINE)
    assert set(inspect.signature(method).parameters) <= set(described)


def test_a_column_is_an_array(path):
    rows = load(path, split="test")
    for name, values in rows.numpy(defaults={"x": 0}).items():
        assert rows[name].dtype == values.dtype
        assert list(map(str, rows[name])) == list(map(str, values))
    with pytest.raises(UsageError, match="column 'nam' is not in the schema: did you mean 'name'"):
        rows["nam"]


def test_data_frames_have_the_rows(path):
    rows = load(path, columns=["id", "x", "name", "tags", "at"])
    assert pa.Table.from_pandas(rows.to_pandas()).to_pylist() == list(rows.rows())
    polars = pytest.importorskip("polars")
    assert polars.DataFrame.equals(rows.to_polars(), polars.from_arrow(rows.arrow()))


def test_data_frames_keep_integers_beside_nulls(tmp_path):
    values = [2**53 + 1, None]
    make_dataset(tmp_path, pa.table({"x": pa.array(values, pa.int64())}))
    assert load(tmp_path).to_pandas()["x"].tolist() == values


def test_data_frames_need_their_package_and_no_tensors(path, tmp_path, monkeypatch):
    tensors = pa.array([[[1.0]]], pa.list_(pa.list_(pa.float32(), 1), 1))
    storage = pa.FixedSizeListArray.from_arrays(tensors.flatten().flatten(), 1)
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float32(), [1]), storage)
    make_dataset(tmp_path, pa.table({"t": tensors}))
    with pytest.raises(UsageError, match="column 't' holds tensors, for which pandas has no type"):
        load(tmp_path).to_pandas()
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UsageError, match=r"to_polars\(\) needs polars: pip install 'polars'"):
        load(path).to_polars()


def test_columns_are_chosen_in_the_order_asked(path):
    dataset = load(path, columns=["name", "id"])
    assert dataset.schema.names == ("name", "id")
    assert next(dataset.rows()) == {"name": "n0", "id": 0}
    assert dataset.arrow().column_names == ["name", "id"]


def test_batches_have_the_rows_asked_for(path):
    assert [batch.num_rows for batch in load(path).batches(4)] == [4, 4, 2]
    joined = pa.Table.from_batches(list(load(path).batches(4)))
    assert joined["id"].to_pylist() == list(range(10))
    with pytest.raises(UsageError, match="at least 1 row"):
        load(path).batches(0)


def test_numpy_keeps_types_and_shapes(path):
    arrays = load(path).numpy(defaults={"x": -1})
    assert arrays["id"].dtype == np.int64
    assert arrays["label"].dtype == np.int32
    assert arrays["x"].tolist() == [0, 0.25, 0.5, -1, 1, 1.25, 1.5, 1.75, 2, 2.25]
    assert arrays["pair"].shape == (10, 2)
    assert arrays["pair"][3].tolist() == [3, 3.5]
    assert arrays["name"][4:6].tolist() == ["n4", None]
    assert [values.tolist() for values in arrays["tags"][:3]] == [[], [0], [0, 1]]
    assert arrays["at"].dtype == np.dtype("datetime64[us]")
    assert np.isnat(arrays["at"]).tolist() == [True] + [False] * 9
    assert arrays["at"][2] == np.datetime64("1970-01-01T00:00:00.000002")


def test_numpy_refuses_missing_numbers_and_unknown_defaults(path):
    with pytest.raises(UsageError, match="default for 'y', but the columns are id, x"):
        load(path).numpy(defaults={"y": 0})
    assert load(path, columns=["id"]).numpy()["id"].tolist() == list(range(10))


def test_all_columns_with_missing_numbers_are_named(tmp_path):
    table = pa.table({"x": [1, None, 3], "y": [1, 2, 3], "z": [None, None, 0.5]})
    make_dataset(tmp_path, table)
    both = (
        r"column 'x' has 1 missing values, column 'z' has 2 missing.* defaults=\{'x': …, 'z': …\}"
    )
    with pytest.raises(UsageError, match=both):
        load(tmp_path).numpy()


@pytest.mark.parametrize(
    "convert", ["numpy", pytest.param("tf", marks=pytest.mark.xdist_group("tensorflow"))]
)
@pytest.mark.parametrize("defaults", [0, 5, "x"])
def test_defaults_are_a_dict(path, convert, defaults):
    with pytest.raises(UsageError, match=f"defaults is {defaults!r}: pass a dict by column, as"):
        getattr(load(path, split="test"), convert)(defaults=defaults)


@pytest.mark.xdist_group("tensorflow")
@pytest.mark.parametrize("missing", [(), (1,)])
def test_a_tensor_has_its_shape_in_every_reader(tmp_path, missing):
    grid = np.arange(12, dtype=np.int16).reshape(2, 2, 3)
    arrow = pa.fixed_shape_tensor(pa.int16(), [2, 3])
    flat = [None if row in missing else grid[row].ravel().tolist() for row in range(2)]
    column = pa.ExtensionArray.from_storage(arrow, pa.array(flat, arrow.storage_type))
    bt.write(pa.table({"grid": column, "same": [0, 1]}), tmp_path / "out", shuffle=False)
    dataset, default = load(tmp_path / "out"), {"grid": 7}
    for row, found in enumerate(zip(dataset, dataset[:], strict=True)):
        for one in found:
            is_same = np.array_equal(one["grid"], grid[row])
            assert one["grid"] is None if row in missing else is_same
    grid[list(missing)] = 7
    assert dataset.numpy(defaults=default)["grid"].dtype == np.int16
    assert dataset.numpy(defaults=default)["grid"].tolist() == grid.tolist()
    (batch,) = dataset.tf(2, defaults=default)
    assert batch["grid"].numpy().tolist() == grid.tolist()
    shape = "shape { dim { size: 2 } dim { size: 3 } }"
    assert (shape in (tmp_path / "out" / "schema.pbtxt").read_text()) is not bool(missing)


def test_lists_of_equal_length_stay_lists_in_numpy(tmp_path):
    table = pa.table(
        {
            "nested": pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
            "words": pa.array([["a", "b"], ["c", "d"]]),
            "time": pa.array([1, None], pa.time32("s")),
            "day": pa.array([datetime.date(2020, 1, 2), None]),
        }
    )
    make_dataset(tmp_path, table, shards=1)
    arrays = load(tmp_path).numpy()
    assert arrays["nested"].shape == (2,)
    assert arrays["nested"][1] == [[5, 6], [7, 8]]
    assert arrays["words"].tolist() == [["a", "b"], ["c", "d"]]
    assert str(arrays["time"].tolist()) == "[datetime.timedelta(seconds=1), None]"
    assert arrays["day"].tolist() == [datetime.date(2020, 1, 2), None]


def test_times_that_python_cannot_hold_come_as_numpys(tmp_path):
    table = pa.table(
        {
            "ns": pa.array([1, None], pa.timestamp("ns")),
            "far": pa.array([10**12, 0], pa.timestamp("s")),
        }
    )
    make_dataset(tmp_path, table, shards=1)
    first, second = load(tmp_path).rows()
    assert first["ns"] == np.datetime64(1, "ns")
    assert second["ns"] is None
    assert str(first["far"]) == "33658-09-27T01:46:40"


def test_what_does_not_exist_is_named(path, tmp_path):
    with pytest.raises(UsageError, match="no dataset at"):
        load(tmp_path / "nothing")
    with pytest.raises(UsageError, match="split 'dev' does not exist: the splits are train, test"):
        load(path, split="dev")
    with pytest.raises(UsageError, match=r"split \['dev'\] cannot be read: write 'train'"):
        load(path, split=["dev"])
    with pytest.raises(UsageError, match="column 'y' is not in the schema"):
        load(path, columns=["y"])
    with pytest.raises(UsageError, match="is one string: pass a list of them"):
        load(path, columns="id")


def test_a_missing_shard_is_named_before_anything_is_read(own):
    os.remove(own / "test-00001-of-00002.tfrecord")
    with pytest.raises(DataError, match=r"test-00001-of-00002\.tfrecord' is missing"):
        next(load(own).rows())
    assert len(list(load(own, split="train").rows())) == 7


def test_a_shard_of_another_dataset_is_refused(own):
    first = own / "train-00000-of-00002.tfrecord"
    os.replace(own / "train-00001-of-00002.tfrecord", first)
    (own / "train-00001-of-00002.tfrecord").write_bytes(b"")
    with pytest.raises(DataError, match=r"train-00000.* has [\d,]+ bytes but the manifest says"):
        list(load(own).rows())


def test_a_compressed_shard_of_another_dataset_is_refused(tmp_path):
    make_dataset(tmp_path, TABLE, splits=SPLITS, compression="GZIP")
    shards = [tmp_path / f"train-0000{number}-of-00002.tfrecord.gz" for number in (0, 1)]
    shards[0].write_bytes(shards[1].read_bytes())
    with pytest.raises(DataError, match=r"train-00000.* has 3 examples but the manifest says 4"):
        list(load(tmp_path).examples())


def test_examples_that_do_not_fit_the_schema_are_told(tmp_path):
    manifest = make_dataset(tmp_path, TABLE, shards=1)
    examples = list(load(tmp_path).examples())
    other = manifest.schema.edit(id=Feature(type="text"))
    write_examples(tmp_path / "kind", {"data": [examples]}, other)
    with pytest.raises(DataError, match=r"does not fit the schema.*from record 0 on.*'id'"):
        list(load(tmp_path / "kind").rows())
    required = manifest.schema.edit(x=Feature(type=pa.float32(), nullable=False))
    write_examples(tmp_path / "missing", {"data": [examples]}, required)
    with pytest.raises(DataError, match="a value of column 'x' is missing"):
        list(load(tmp_path / "missing").rows())


def test_parts_for_workers_hold_every_shard_once(path):
    parts = [load(path).of_shards(index, 3) for index in range(3)]
    assert [[shard.path[:11] for shard in part.shards] for part in parts] == [
        ["train-00000", "test-00001-"],
        ["train-00001"],
        ["test-00000-"],
    ]
    assert sorted(row["id"] for part in parts for row in part.rows()) == list(range(10))
    assert sum(len(part) for part in parts) == 10
    with pytest.raises(UsageError, match="shard 3 of 3 does not exist"):
        load(path).of_shards(3, 3)


def test_more_readers_than_shards_are_refused(path, tmp_path):
    for index in range(5):
        with pytest.raises(
            UsageError, match=r"too few shards \(4\) for 5 readers: write the datas"
        ):
            load(path).of_shards(index, 5)
    make_dataset(tmp_path / "one", TABLE, shards=1)
    with pytest.raises(UsageError, match=r"too few shards \(1\) for 2 readers: .*shards=2 or more"):
        load(tmp_path / "one").of_shards(1, 2)
    # Where there are no rows at all, every reader has the same number of them.
    write_examples(tmp_path / "none", {"data": []}, Schema((Feature("a", "int64"),)))
    assert len(load(tmp_path / "none").of_shards(1, 2)) == 0


def test_reading_imports_neither_beam_nor_tensorflow(path):
    code = f"""
import sys
from beam_tfrecord.dataset.load import load
dataset = load({str(path)!r})
list(dataset.rows()), list(dataset.examples()), dataset.numpy(defaults={{"x": 0}})
print([name for name in ("apache_beam", "tensorflow", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.xdist_group("tensorflow")
class TestTf:
    """``Dataset.tf``, judged by what comes out."""

    @pytest.fixture
    def dataset(self, tmp_path):
        make_dataset(tmp_path / "one", TABLE, shards=4)
        return load(tmp_path / "one")

    def test_batches_in_order_with_their_cardinality(self, dataset):
        batches = dataset.tf(4, columns=["id", "tags", "pair"])
        assert int(batches.cardinality()) == 3
        found = list(batches)
        assert [value for batch in found for value in batch["id"].numpy()] == list(range(10))
        assert found[0]["tags"].to_list() == [[], [0], [0, 1], []]
        assert found[2]["pair"].numpy().tolist() == [[8, 8.5], [9, 9.5]]
        assert int(dataset.tf(4, drop_remainder=True).cardinality()) == 2

    def test_single_examples_where_there_is_no_batch_size(self, dataset):
        examples = dataset.tf(columns=["id", "tags"])
        assert int(examples.cardinality()) == 10
        assert [example["tags"].numpy().tolist() for example in examples][:3] == [[], [0], [0, 1]]

    def test_labels_and_defaults(self, dataset):
        options = {"columns": ["x"], "defaults": {"x": 7.0}}
        features, label = next(iter(dataset.tf(10, label="label", **options)))
        assert list(features) == ["x"]
        assert features["x"].numpy()[2:5].tolist() == [0.5, 7, 1]
        assert label.numpy().tolist() == [0, 1] * 5
        _, labels = next(iter(dataset.tf(10, label=["label", "id"], **options)))
        assert sorted(labels) == ["id", "label"]

    def test_without_a_default_what_may_be_missing_is_sparse(self, dataset):
        batch = next(iter(dataset.tf(10, columns=["x"])))
        assert batch["x"].indices.numpy()[:4, 0].tolist() == [0, 1, 2, 4]

    def test_splits_are_not_mixed(self, path):
        with pytest.raises(UsageError, match=r"splits train, test: choose one, as load\(path, spl"):
            load(path).tf()
        assert len(list(load(path, split="test").tf())) == 3

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"label": "name"}, "label 'name' has 1 missing values: pass defaults"),
            ({"label": "y"}, "column 'y' is not in the schema"),
            ({"columns": "id"}, "is one string: pass a list of them"),
            ({"columns": []}, "no column to read"),
            ({"defaults": {"y": 0}}, "default for 'y'"),
            ({"shard": (2, 2)}, "reader 2 of 2 does not exist"),
            ({"start_step": -1}, "start_step is -1: count steps from 0"),
            ({"seed": -1}, "seed -1 is out of range: choose one from 0 to"),
            ({"seed": "x"}, "seed 'x' is out of range"),
            ({"batch_size": -1}, "a batch must have at least 1 row, not -1"),
        ],
    )
    def test_wrong_options_are_named(self, dataset, options, message):
        with pytest.raises(UsageError, match=message):
            dataset.tf(**{"batch_size": 4, **options})

    def test_a_missing_shard_is_told_at_once(self, own):
        os.remove(own / "test-00001-of-00002.tfrecord")
        with pytest.raises(DataError, match="is missing"):
            load(own, split="test").tf(4)
