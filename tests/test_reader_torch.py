"""``torch()``: what batches hold, and in which order; on a stand-in where PyTorch is missing."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord.dataset.load import Dataset, load
from beam_tfrecord.errors import UsageError
from tests.made_datasets import make_dataset

ROWS = 40


class _Torch(types.ModuleType):
    """The few names of PyTorch that the reader uses."""

    def __init__(self) -> None:
        super().__init__("torch")
        self._random = np.random.default_rng(0)
        self.worker: Any = None
        self.utils = types.ModuleType("torch.utils")
        self.utils.data = types.ModuleType("torch.utils.data")
        self.utils.data.IterableDataset = object
        self.utils.data.get_worker_info = lambda: self.worker

    def manual_seed(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def randint(self, high: int, size: tuple[int, ...]) -> Any:
        return self._random.integers(high, size=size)

    def as_tensor(self, value: Any) -> Any:
        # PyTorch itself only warns, and writes to memory that is not its own.
        assert value.flags.writeable or not value.ndim, "the NumPy array is not writable"
        return np.asarray(value)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if importlib.util.find_spec("torch") is not None:
        yield importlib.import_module("torch")
        return
    stand_in = _Torch()
    for name, module in (
        ("torch", stand_in),
        ("torch.utils", stand_in.utils),
        ("torch.utils.data", stand_in.utils.data),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "beam_tfrecord.dataset.torch", raising=False)
    yield stand_in
    sys.modules.pop("beam_tfrecord.dataset.torch", None)


def made(directory: Path, table: pa.Table, shards: int = 4) -> Dataset:
    make_dataset(directory, table, shards=shards)
    return load(directory)


@pytest.fixture
def numbers(tmp_path: Path) -> Dataset:
    return made(tmp_path, pa.table({"id": np.arange(ROWS)}))


def ids(epoch: Any) -> list[int]:
    return [int(one) for batch in epoch for one in batch["id"]]


@pytest.mark.parametrize("shuffle", [True, 5])
def test_shuffling_gives_every_epoch_an_order_of_its_own(
    torch: Any, numbers: Dataset, shuffle: bool | int
) -> None:
    dataset = numbers.torch(7, shuffle=shuffle)
    torch.manual_seed(3)
    epochs = [ids(dataset) for _ in range(3)]
    assert all(sorted(epoch) == list(range(ROWS)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [*epochs, range(ROWS)]}) == 4
    torch.manual_seed(3)
    assert [ids(dataset) for _ in range(3)] == epochs
    assert ids(numbers.torch(7)) == ids(numbers.torch(7)) == list(range(ROWS))


def test_a_number_mixes_so_many_rows_with_each_other(torch: Any, numbers: Dataset) -> None:
    found = ids(numbers.torch(10, shuffle=5))
    tens = [found[start : start + 10] for start in range(0, ROWS, 10)]
    assert all(sorted(ten) == sorted(range(min(ten), min(ten) + 10)) for ten in tens)
    assert tens != [list(range(start, start + 10)) for start in range(0, ROWS, 10)]


def test_more_workers_than_shards_lose_nothing(torch: Any, numbers: Dataset) -> None:
    if not isinstance(torch, _Torch):
        pytest.skip("the workers of PyTorch are processes")
    found = []
    for number in range(6):
        torch.worker = types.SimpleNamespace(id=number, num_workers=6)
        found += ids(numbers.torch(7, shuffle=True))
    assert sorted(found) == list(range(ROWS))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None], pa.int32()),
        pa.array([0.5, None]),
        pa.array([True, None]),
        pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    ],
)
def test_a_column_that_may_lack_numbers_is_refused_at_once(
    torch: Any, tmp_path: Path, column: pa.Array
) -> None:
    present = pa.concat_arrays([column.take(pa.array([0] * 20)), column.slice(1)])
    dataset = made(tmp_path, pa.table({"id": np.arange(21), "x": present}))
    with pytest.raises(
        UsageError, match=r"'x' has 1 missing values, which no tensor holds: pass d"
    ):
        dataset.torch(5)
    assert len(ids(load(tmp_path, columns=["id"]).torch(5))) == 21


def test_a_default_makes_it_a_tensor(torch: Any, tmp_path: Path) -> None:
    dataset = made(tmp_path, pa.table({"x": pa.array([1.5, None, 2.5])}), shards=1)
    (batch,) = dataset.torch(3, defaults={"x": -1.0})
    assert batch["x"].tolist() == [1.5, -1.0, 2.5]
    with pytest.raises(UsageError, match="default for 'y', but the columns are x"):
        dataset.torch(3, defaults={"x": 0.0, "y": 0.0})


def test_a_column_comes_alike_in_every_batch(torch: Any, tmp_path: Path) -> None:
    table = pa.table(
        {
            "text": ["a", "b", None, "d"],
            "tags": pa.array([[1], [2, 3], None, []], pa.list_(pa.int64())),
            "at": pa.array([1, 2, None, 4], pa.timestamp("s")),
        }
    )
    batches = list(made(tmp_path, table, shards=1).torch(1))
    for name in table.column_names:
        kinds = {type(batch[name]) for batch in batches}
        assert kinds == ({np.ndarray} if name == "at" else {list})


@pytest.mark.parametrize("batch_size", [None, 2])
def test_what_tensors_are_made_of_may_be_written_to(
    torch: Any, tmp_path: Path, batch_size: int | None
) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "tags": pa.array([[1], [2, 3]], pa.list_(pa.int64())),
            "pair": pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2)),
        }
    )
    batches = list(made(tmp_path, table, shards=1).torch(batch_size))
    assert len(batches) == (2 if batch_size is None else 1)
    for batch in batches:
        tags = [batch["tags"]] if batch_size is None else batch["tags"]
        for values in (*tags, batch["pair"]):
            if isinstance(values, np.ndarray):
                assert values.flags.writeable


def test_all_columns_with_missing_numbers_are_named(torch: Any, tmp_path: Path) -> None:
    dataset = made(tmp_path, pa.table({"x": [1, None, 3], "y": [1, 2, 3], "z": [None, None, 0.5]}))
    both = r"'x' has 1 missing values, column 'z' has 2 missing.* defaults=\{'x': …, 'z': …\}"
    with pytest.raises(UsageError, match=both):
        dataset.torch()


@pytest.mark.parametrize("defaults", [0, 5, "x"])
def test_defaults_are_a_dict(torch: Any, numbers: Dataset, defaults: Any) -> None:
    with pytest.raises(UsageError, match=f"defaults is {defaults!r}: pass a dict by column, as"):
        numbers.torch(defaults=defaults)
