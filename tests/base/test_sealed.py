"""What a job stores for its next attempt: read back as it was, and never more than plain values."""

import dataclasses
import io
import json
import os
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord import native
from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange import checkpoints
from beam_tfrecord.exchange.shard_writers import Piece
from beam_tfrecord.exchange.spill_files import BinCounts, Run
from beam_tfrecord.exchange.tally import Tally
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.jobs import identity
from beam_tfrecord.sources.base import InputFile, Unit
from beam_tfrecord.sources.csv.read import CsvUnit
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.files import list_input
from beam_tfrecord.sources.groups import Group
from beam_tfrecord.sources.images.listing import Found, pack_files
from beam_tfrecord.sources.numpy.columns import Column
from beam_tfrecord.sources.numpy.files import StoredArray
from beam_tfrecord.workdir import object_file, stored_plan

STRUCTURED = np.dtype([("a", "<f4"), ("b", [("c", ">i2", (2, 3)), ("d", "S3")])])


def stored(tmp_path, value):
    object_file.save(str(tmp_path / "stored"), value)
    return object_file.load(str(tmp_path / "stored"))


def forged(tmp_path, form, parts=b""):
    """Load a file of any content under a right hash."""
    text = form if isinstance(form, bytes) else json.dumps(form).encode()
    payload = struct.pack("<Q", len(text)) + text + parts
    path = tmp_path / "forged"
    path.write_bytes(b"BTFKEPT\x02" + struct.pack("<Q", native.xxh64(payload, 0)) + payload)
    return object_file.load(str(path))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, -(2**80), 1.5, "a\udc80ä", True, None, b"\x00\xff", b""],
        ((), (1,), ((2, "x"), [frozenset({"b"})]), {"k": {"l": (1,)}, "m": {}}),
        pa.schema(
            [
                pa.field("a", pa.list_(pa.int8(), 3), nullable=False, metadata={"k": "v"}),
                pa.field("t", TensorType("<f4", (2, None))),
                pa.field("d", pa.decimal128(20, 3)),
            ],
            metadata={"of": "all"},
        ),
        Column("a", "data", ("x",), np.dtype("<M8[25s]"), (None, 3)),
        StoredArray("a", STRUCTURED, (4,), is_fortran=True, start=80, member="a.npy"),
    ],
)
def test_values_come_back(value, tmp_path):
    found = stored(tmp_path, value)
    assert found == value
    assert repr(found) == repr(value)


def test_arrays_come_back(tmp_path):
    counts = BinCounts(np.array([1, 2**63], np.uint64), np.array([3, 4]), np.array([5, 6]), 48)
    found = stored(tmp_path, [Run("run-1", {"train": counts, "test": counts})])[0].counts
    assert found["train"].bins.tolist() == [1, 2**63]
    assert found["test"].bytes.tolist() == [5, 6]
    assert found["train"].bins.dtype == np.uint64


def test_units_share_their_file_as_before(tmp_path):
    file = InputFile("/in/a", "a", 9, "1", (("k", None), ("l", "v")))
    units = tuple(
        Unit(f"a:{i}", file, i, i, i + 1, None, 3, 4, CsvUnit(("x",), i, True)) for i in (0, 1)
    )
    (pack,) = pack_files([Found("aä.png", 7, 1)], root="/in", classes=("c",))
    groups = [Group(0, 0, units), Group(1, 2, (Unit("p", pack, 0, 0, 1, 1, 7, 9),))]
    found = stored(tmp_path, groups)
    assert found == groups
    assert found[0].units[0].file is found[0].units[1].file
    assert found[1].units[0].file.files() == (["aä.png"], [7])


def test_what_cannot_be_stored_is_refused(tmp_path):
    for value in (object(), np.zeros((2, 2)), np.array([None]), {1j}, os.path.join, Path("a")):
        with pytest.raises(TypeError, match="cannot be stored"):
            object_file.save(str(tmp_path / "x"), [value])
        assert not (tmp_path / "x").exists()


def test_nothing_of_the_former_format_is_read(tmp_path):
    """Pickles under a right seal: an array of objects, a callable dataclass, a plain list."""

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trapped"),)

    overwriting = io.BytesIO()
    keep = stored_plan.Stored(list, str(tmp_path), "overwritten")
    pickle.dump([keep, np.array([keep], object)], overwriting)
    for payload in (pickle.dumps([1]), pickle.dumps([Trap()]), overwriting.getvalue()):
        for magic in (b"BTFKEPT\x01", b"BTFKEPT\x02"):
            head = magic + native.xxh64(payload, 0).to_bytes(8, "little")
            (tmp_path / "old").write_bytes(head + payload)
            assert object_file.load(str(tmp_path / "old")) is None
    assert sorted(os.listdir(tmp_path)) == ["old"]


@pytest.mark.parametrize(
    "form",
    [
        # Classes that are not stored: of the package, callable, of others.
        {"Stored": [[0], [["f"], ["d"], ["n"]]]},
        {"beam_tfrecord.workdir.stored_plan.Stored": [[0], [["f"], ["d"], ["n"]]]},
        # Fields too few, too many, and of other types.
        {"CsvUnit": [[0], [{"(": [[1], ["a"]]}]]},
        {"CsvUnit": [[0], [{"(": [[1], ["a"]]}, [1], [2]]]},
        {"CsvUnit": [[0], [{"(": [[1], [5]]}, [1]]]},
        {"CsvUnit": [[0], [{"(": [[1], ["a"]]}, [True]]]},
        {"Refused": [[0], [["1"], ["a"], ["b"], ["c"]]]},
        # Columns whose parts do not agree, or are not there.
        {"Refused": [[1], [[1], ["a"], ["b"], ["c"]]]},
        {"Refused": [[0], [[1, 2], ["a"], ["b"], ["c"]]]},
        {"(": [[1], [1, 2]]},
        {"(": [[-1], []]},
        {"b": [0, [10**12]]},
        {"|": [[0, 1], [[1]]]},
        {"{": [[1], ["a"], []]},
        {"?": []},
        [[1]],
        [],
        5,
        # Python objects, and types that Arrow does not know.
        {"n": [["|O"], {"b": [0, [8]]}]},
        {"n": [["<U1000000000"], {"b": [0, [8]]}]},
        {"d": ["object"]},
        {"d": [{"[": [[1], {"(": [[2], ["a", "|O"]]}]}]},
        {"s": {"b": [0, [8]]}},
        b"[" * 10**6,
        b'{"(":[[1],' * 10**5,
        b"[1e999999999999,]",
        b"\xff",
    ],
)
def test_anything_else_is_as_good_as_nothing(form, tmp_path):
    assert forged(tmp_path, form, bytes(8)) is None


def test_a_forged_value_is_read_where_it_is_plain(tmp_path):
    # Else the cases above would show nothing.
    assert forged(tmp_path, {"Refused": [[0], [[2], ["a"], ["b"], ["c"]]]}).rows == 2
    assert forged(tmp_path, {"(": [[2], {"b": [1, [1, 2]]}]}, b"abcd") == (b"b", b"cd")


def test_a_damaged_file_is_as_good_as_none(tmp_path):
    path = tmp_path / "stored"
    object_file.save(str(path), [1, "two", b"three"])
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        assert object_file.load(str(path)) is None
        path.write_bytes(data[:position])
        assert object_file.load(str(path)) is None


@pytest.mark.slow
def test_names_in_a_pack_are_bounded_and_those_that_were_listed(tmp_path):
    (pack,) = pack_files([Found("a.png", 7, 1)], root="/in", classes=())
    bomb = dataclasses.replace(pack, names=zlib.compress(bytes(2**31), 1))
    for forged_pack in (bomb, dataclasses.replace(pack, names=zlib.compress(b"../../etc/passwd"))):
        with pytest.raises(DataError, match="was changed: run the job again"):
            forged_pack.files()


def made(**changes):
    counts = BinCounts(np.array([1], np.uint64), np.array([3]), np.array([60]), 48)
    values = {"tally": Tally(), "runs": (Run("run-1", {"a": counts}),)}
    return checkpoints.Done(**{**values, "sizes": (0,), **changes})


def zeros(*lengths):
    return (np.zeros(n, dtype) for n, dtype in zip(lengths, ("u8", "i8", "i8"), strict=True))


@pytest.mark.parametrize(
    "done",
    [
        made(tally=Tally(reject_files=("../../outside",))),
        made(sizes=()),
        made(runs=(Run("../run", {}),)),
        made(runs=(Run("r", {"a": BinCounts(*zeros(2, 1, 1), 48)}),)),
        made(runs=(Run("r", {"a": BinCounts(*zeros(2, 2, 2), 48)}),)),
        made(runs=(Run("r", {"a": BinCounts(*zeros(1, 1, 1), 64)}),)),
        made(runs=(Run("r", {"../a": BinCounts(*zeros(1, 1, 1), 48)}),)),
        made(pieces=(Piece("../../a", (0,), "shard", 1, 1, "0", 0, 1),)),
        made(pieces=(Piece("a", (0,), "/etc/passwd", 1, 1, "0", 0, 1),)),
    ],
)
def test_a_mark_leads_nowhere_else(done, tmp_path):
    object_file.save(str(tmp_path / "group-k"), done)
    assert object_file.load(str(tmp_path / "group-k")) is not None
    assert checkpoints.find_group(str(tmp_path), "k") is None
    assert checkpoints.marked_files(str(tmp_path)) == set()
    object_file.save(str(tmp_path / "done-k"), done)
    assert checkpoints.find_merged(str(tmp_path), "k") is None


def test_a_stored_plan_reads_the_listed_files_alone(tmp_path):
    (tmp_path / "in.csv").write_text("a\n1\n2\n")
    source = Csv(str(tmp_path / "in.csv"))
    files = list_input(source).outlines
    directory = str(tmp_path / "job")
    plan = os.path.join(directory, stored_plan.GROUPS)

    def begun(groups):
        identity.begin(directory, "f", files, source=source, is_mapped=False)
        object_file.save(plan, groups)
        identity.begin(directory, "f", files, source=source, is_mapped=False)
        return os.path.exists(plan)

    unit = source.all_units(source.all_scans())[0]
    other = dataclasses.replace(unit.file, path="/etc/passwd")
    assert begun([Group(0, 0, (unit,))])
    assert not begun([Group(0, 0, (dataclasses.replace(unit, file=other),))])
    assert not begun([Group(0, 0, (dataclasses.replace(unit, detail=None),))])
    assert not begun([unit])


@pytest.mark.parametrize("text", ['{"attempts": "x"}', "[" * 10**5, "5", '{"attempts": 1e9}', ""])
def test_a_plan_of_any_content_begins_anew(text, tmp_path):
    source = Csv(str(tmp_path / "in.csv"))
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "plan.json").write_text(text)
    (tmp_path / "job" / "group-old").write_bytes(b"BTFKEPT\x01")
    assert identity.begin(str(tmp_path / "job"), "f", (), source=source, is_mapped=False) == 1
    assert sorted(os.listdir(tmp_path / "job")) == ["plan.json"]
