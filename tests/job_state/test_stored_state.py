"""What a job stores for its next attempt: read back as it was, and never more than plain values."""

import dataclasses
import os
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord import native
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.feature import ColumnStats, Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.format.tally import Discovered, DuplicateCount, Tally
from beam_tfrecord.job_state import checkpoints, stored_state
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.run_files import BinCounts, SpillRun
from beam_tfrecord.jobs import fingerprint
from beam_tfrecord.sources.base import InputFile, Source, Unit
from beam_tfrecord.sources.csv.read import CsvUnit
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.files import list_input
from beam_tfrecord.sources.images.folders import FoundFile, pack_files
from beam_tfrecord.sources.read_tasks import ReadTask
from beam_tfrecord.sources.typed_files import PieceRange, PieceUnit


class Anything(Source):
    """A source whose plan has details of any type."""

    def __init__(self, detail_type, file_type=InputFile):
        self.detail_type, self.file_type = detail_type, file_type

    files = chunks = scan = units = infer = merge = read = None


Anything.__abstractmethods__ = frozenset()


def stored(directory, value, kind):
    stored_state.save(str(directory / "stored"), value)
    return stored_state.load(str(directory / "stored"), kind)


def sealed(path, value):
    """Write a file of any content under a right hash."""
    data = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    path.write_bytes(native.xxh64(data, stored_state.FORMAT).to_bytes(8, "little") + data)


@pytest.mark.parametrize(
    "value",
    [
        pa.schema(
            [
                pa.field("a", pa.list_(pa.int8(), 3), nullable=False, metadata={"k": "v"}),
                pa.field("t", TensorType("<f4", (2, None))),
                pa.field("d", pa.decimal128(20, 3)),
            ],
            metadata={"of": "all"},
        ),
        Tally(
            5,
            reject_files=("b", "a"),
            schema=Schema(
                (
                    Feature(
                        "a", pa.timestamp("us", "UTC"), default=3, observed=ColumnStats(1, -2.5, 4)
                    ),
                    Feature("b", pa.list_(pa.string()), labels=("x", "y"), fill=""),
                    Feature("c", "int64", shape=(2, 3)),
                )
            ),
            observed={"a": ColumnStats(1, np.float64(1.5), np.int64(2), float("inf"))},
            discovered={"b": Discovered(1, 2, 3, 4)},
            left_out=frozenset({"q"}),
            copies=DuplicateCount(2**64 - 1, b"12345678", b"87654321"),
            staged=b"\x01",
        ),
        PieceUnit(3, (PieceRange(1, 2, 3, 4),), pa.schema([("a", pa.int8())])),
    ],
)
def test_values_come_back(value, tmp_path):
    assert stored(tmp_path, value, type(value)) == value


def test_arrays_come_back(tmp_path):
    counts = BinCounts(np.array([1, 2**63], np.uint64), np.array([3, 4]), np.array([5, 6]), 48)
    found = stored(tmp_path, SpillRun("run-1", {"train": counts, "test": counts}), SpillRun).counts
    assert found["train"].bins.tolist() == [1, 2**63]
    assert found["test"].bytes.tolist() == [5, 6]
    assert found["train"].bins.dtype == np.uint64


def test_units_share_their_file_as_before(tmp_path):
    file = InputFile("/in/a", "a", 9, "1", (("k", None), ("l", "v")))
    units = tuple(
        Unit(f"a:{i}", file, i, i, i + 1, None, 3, 4, CsvUnit(("x",), i, True)) for i in (0, 1)
    )
    tasks = [ReadTask(0, 0, units), ReadTask(1, 2, units[1:])]
    stored_state.save_tasks(str(tmp_path), tasks)
    found = stored_state.load_tasks(str(tmp_path), Anything(CsvUnit))
    assert found == tasks
    assert found[0].units[0].file is found[1].units[0].file
    assert stored_state.count_tasks(str(tmp_path)) == 2


def test_files_of_a_class_of_their_own_come_back(tmp_path):
    (pack,) = pack_files([FoundFile("aä.png", 7, 1)], root="/in", classes=("c",))
    plain = InputFile("/in/a", "a", 9)
    units = tuple(Unit(of.name, of, 0, 0, 1, 1, 7, 9) for of in (pack, plain))
    stored_state.save_tasks(str(tmp_path), [ReadTask(0, 0, units)])
    (found,) = stored_state.load_tasks(str(tmp_path), Anything(None, type(pack)))
    assert found.units == units
    assert found.units[0].file.files() == (["aä.png"], [7])
    assert type(found.units[1].file) is InputFile


def test_a_path_that_is_not_utf8_is_refused(tmp_path):
    unit = Unit("a", InputFile("/in\udcff/a", "a", 9), 0, 0, 1, 1, 7, 9)
    with pytest.raises(UsageError, match=r"the path '/in.udcff/a' is not utf-8: rename its"):
        stored_state.save_tasks(str(tmp_path), [ReadTask(0, 0, (unit,))])


def test_what_cannot_be_stored_is_refused(tmp_path):
    for value in (object(), np.zeros((2, 2)), np.array([None]), 1j, os.path.join, Path("a")):
        with pytest.raises(TypeError, match="cannot be stored"):
            stored_state.save(str(tmp_path / "x"), [value])
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        # Fields too few, and of other types.
        (CsvUnit, {"names": ["a"], "line": 1}),
        (CsvUnit, {"names": ["a", 5], "line": 1, "rows_are_lines": True}),
        (CsvUnit, {"names": ["a"], "line": True, "rows_are_lines": True}),
        (PieceRange, [1, 2, 3, "4"]),
        (ColumnStats, {"missing": 1, "min": "low"}),
        # Objects, and what NumPy and Arrow do not know.
        (BinCounts, {"bins": ["|O", bytes(8)], "rows": 1, "bytes": 1, "shift": 1}),
        (BinCounts, {"bins": ["<i8", bytes(8)], "rows": 1, "bytes": 1, "shift": 1}),
        (BinCounts, {"bins": ["<u8", bytes(7)], "rows": 1, "bytes": 1, "shift": 1}),
        (pa.Schema, bytes(8)),
        (pa.DataType, b""),
        pytest.param(list[pa.Schema], b"\x91" * 10**6, id="deep-schema"),
        pytest.param(Any, b"\x91" * 10**6, id="deep"),
        (CsvUnit, b"\xc1"),
    ],
)
def test_anything_else_is_as_good_as_nothing(kind, value, tmp_path):
    sealed(tmp_path / "forged", value)
    assert stored_state.load(str(tmp_path / "forged"), kind) is None


def test_a_wrong_type_is_one_line_with_its_path(tmp_path, caplog):
    caplog.set_level("DEBUG", "beam_tfrecord")
    sealed(tmp_path / "forged", {"names": ["a", 5], "line": 1, "rows_are_lines": True})
    assert stored_state.load(str(tmp_path / "forged"), CsvUnit) is None
    assert caplog.messages == [
        f"{tmp_path / 'forged'} is not used: Expected `str`, got `int` - at `$.names[1]`"
    ]


def test_a_damaged_file_is_as_good_as_none(tmp_path):
    path = tmp_path / "stored"
    stored_state.save(str(path), [1, "two", b"three"])
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        assert stored_state.load(str(path), Any) is None
        path.write_bytes(data[:position])
        assert stored_state.load(str(path), Any) is None


@pytest.mark.slow
def test_names_in_a_pack_are_bounded_and_those_that_were_listed(tmp_path):
    (pack,) = pack_files([FoundFile("a.png", 7, 1)], root="/in", classes=())
    bomb = dataclasses.replace(pack, names=zlib.compress(bytes(2**31), 1))
    for forged_pack in (bomb, dataclasses.replace(pack, names=zlib.compress(b"../../etc/passwd"))):
        with pytest.raises(DataError, match="was changed: run the job again"):
            forged_pack.files()


def made(**changes):
    counts = BinCounts(np.array([1], np.uint64), np.array([3]), np.array([60]), 48)
    values = {"tally": Tally(), "runs": (SpillRun("run-1", {"a": counts}),)}
    return checkpoints.Done(**{**values, "sizes": (0,), **changes})


def zeros(*lengths):
    return (np.zeros(n, dtype) for n, dtype in zip(lengths, ("u8", "i8", "i8"), strict=True))


@pytest.mark.parametrize(
    "done",
    [
        made(tally=Tally(reject_files=("../../outside",))),
        made(sizes=()),
        made(runs=(SpillRun("../run", {}),)),
        made(runs=(SpillRun("r", {"a": BinCounts(*zeros(2, 1, 1), 48)}),)),
        made(runs=(SpillRun("r", {"a": BinCounts(*zeros(2, 2, 2), 48)}),)),
        made(runs=(SpillRun("r", {"a": BinCounts(*zeros(1, 1, 1), 64)}),)),
        made(runs=(SpillRun("r", {"../a": BinCounts(*zeros(1, 1, 1), 48)}),)),
        made(shards=(FinishedShard("../../a", (0,), "shard", 1, 1, "0", 0, 1),)),
        made(shards=(FinishedShard("a", (0,), "/etc/passwd", 1, 1, "0", 0, 1),)),
    ],
)
def test_a_mark_leads_nowhere_else(done, tmp_path):
    stored_state.save(str(tmp_path / "task-k"), done)
    assert stored_state.load(str(tmp_path / "task-k"), checkpoints.Done) is not None
    assert checkpoints.find_task(str(tmp_path), "k") is None
    assert checkpoints.marked_files(str(tmp_path)) == set()
    stored_state.save(str(tmp_path / "done-k"), done)
    assert checkpoints.find_merged(str(tmp_path), "k") is None


def test_a_stored_plan_reads_the_listed_files_alone(tmp_path):
    (tmp_path / "in.csv").write_text("a\n1\n2\n")
    source = Csv(str(tmp_path / "in.csv"))
    files = list_input(source).outlines
    directory = str(tmp_path / "job")
    plan = os.path.join(directory, stored_state.TASKS)

    def begun(tasks):
        fingerprint.begin(directory, "f", files, source=source, of_all_rows=False)
        stored_state.save_tasks(directory, tasks)
        fingerprint.begin(directory, "f", files, source=source, of_all_rows=False)
        return os.path.exists(plan)

    unit = source.all_units(source.all_scans())[0]
    other = dataclasses.replace(unit.file, path="/etc/passwd")
    assert begun([ReadTask(0, 0, (unit,))])
    assert not begun([ReadTask(0, 0, (dataclasses.replace(unit, file=other),))])
    assert not begun([ReadTask(0, 0, (dataclasses.replace(unit, detail=None),))])
    stored_state.save_tasks(directory, [])
    sealed(tmp_path / "job" / stored_state.TASKS, [[], [], [], [[0, 0, [["a", 5]]]]])
    fingerprint.begin(directory, "f", files, source=source, of_all_rows=False)
    assert not os.path.exists(plan)


@pytest.mark.parametrize(
    "text",
    ['{"attempts": "x"}', "[" * 10**5, "5", '{"attempts": 1e9}', ""],
    ids=["text", "deep", "number", "large", "empty"],
)
def test_a_plan_of_any_content_begins_anew(text, tmp_path):
    source = Csv(str(tmp_path / "in.csv"))
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "plan.json").write_text(text)
    (tmp_path / "job" / "task-old").write_bytes(b"BTFKEPT\x01")
    assert fingerprint.begin(str(tmp_path / "job"), "f", (), source=source, of_all_rows=False) == 1
    assert sorted(os.listdir(tmp_path / "job")) == ["plan.json"]
