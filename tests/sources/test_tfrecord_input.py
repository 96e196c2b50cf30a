"""TFRecord files as an input: datasets that are written again, and files of other programs."""

from __future__ import annotations

import gzip
import json
import shutil
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, DataError, TargetExists, UsageError
from beam_tfrecord.sources.tfrecord import Tfrecord, copying
from tests.helpers.effort import examples
from tests.helpers.records import example, framed, masked_crc, read_records, write_records
from tests.native import wire


def table(rows: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "when": pa.array([number * 10**6 for number in numbers], pa.timestamp("us", "UTC")),
            "name": [f"n{number}" if number % 3 else None for number in numbers],
            "parts": [[{"a": number}] * (number % 3) for number in numbers],
        }
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A dataset of two splits and three shards."""
    directory = tmp_path_factory.mktemp("made")
    pq.write_table(table(600), directory / "a.parquet")
    shards = {"train": 2, "test": 1}
    bt.write(directory / "a.parquet", directory / "ds", splits="train=0.7,test=0.3", shards=shards)
    return directory / "ds"


def payloads(directory):
    """Return the sorted payloads of every split of a dataset, read without this package."""
    manifest = json.loads((directory / "manifest.json").read_text())
    return {
        name: sorted(p for s in split["shards"] for p in read_records(directory / s["path"]))
        for name, split in manifest["splits"].items()
    }


def shown_rows(path):
    return sorted(map(repr, bt.load(path).rows()))


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(
    "options",
    [
        {"shards": 5},
        {"seed": 3, "compression": "gzip"},
        {"shuffle": False},
        {"shuffle": False, "shards": 2},
        {"shard_size": "4KB"},
    ],
)
def test_a_dataset_is_copied_byte_for_byte(made, tmp_path, options, recwarn):
    before, after = bt.Manifest.load(made), bt.write(made, tmp_path / "out", **options)
    assert payloads(tmp_path / "out") == payloads(made)
    assert after.content == before.content
    assert after.schema == before.schema
    assert (tmp_path / "out/schema.json").read_bytes() == (made / "schema.json").read_bytes()
    assert (tmp_path / "out/schema.pbtxt").read_bytes() == (made / "schema.pbtxt").read_bytes()
    assert bt.verify(tmp_path / "out").ok
    assert bt.verify(tmp_path / "out").notes == ()
    assert after.split_by == "assigned"
    assert list(recwarn) == []


def test_a_split_is_made_anew_if_one_is_asked_for(made, tmp_path):
    after = bt.write(made, tmp_path / "out", splits="a=0.5,b=0.5")
    assert set(after.splits) == {"a", "b"}
    assert after.content == bt.Manifest.load(made).content
    assert bt.verify(tmp_path / "out").ok
    grouped = bt.write(made, tmp_path / "grouped", splits="a=0.5,b=0.5", group="id")
    assert (grouped.split_by, grouped.content) == ("group", after.content)
    assert bt.verify(tmp_path / "grouped").ok


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("options", [{"key": "id"}, {"map": dict}, {"columns": ["id", "name"]}])
def test_columns_of_a_dataset_keep_types_and_splits(made, tmp_path, options):
    after = bt.write(made, tmp_path / "out", **options)
    before = bt.load(made, columns=options.get("columns"))
    assert [(f.name, f.type) for f in after.schema.features] == [
        (f.name, f.type) for f in before.schema.features
    ]
    assert shown_rows(tmp_path / "out") == sorted(map(repr, before.rows()))
    for split in ("train", "test"):
        assert len(bt.load(tmp_path / "out", split=split)) == len(bt.load(made, split=split))
    assert bt.verify(tmp_path / "out").ok


@pytest.mark.slow
def test_defaults_and_fills_survive_a_key(tmp_path):
    schema = bt.Schema(
        (
            bt.Feature("id", "int64"),
            bt.Feature("n", "int64", default=7),
            bt.Feature("t", store="text"),
        )
    )
    pq.write_table(
        pa.table({"id": [1, 2], "n": [1, None], "t": ["a", "b"]}), tmp_path / "a.parquet"
    )
    bt.write(tmp_path / "a.parquet", tmp_path / "ds", schema=schema)
    bt.write(tmp_path / "ds", tmp_path / "out", key="id")
    text = (tmp_path / "out/schema.json").read_text()
    assert text == (tmp_path / "ds/schema.json").read_text()
    assert '"default": 7' in text


def test_the_same_input_is_nothing_to_do_even_as_a_copy(made, tmp_path):
    first = bt.write(made, tmp_path / "out")
    written = (tmp_path / "out/job.json").read_bytes()
    copied = tmp_path / "elsewhere/copy"
    shutil.copytree(made, copied)
    assert bt.write(made, tmp_path / "out").fingerprint == first.fingerprint
    assert bt.write(copied, tmp_path / "out").fingerprint == first.fingerprint
    assert (tmp_path / "out/job.json").read_bytes() == written
    listed = first.source["files"]  # type: ignore[index]
    assert [file["digest"] for file in listed] == sorted(
        (shard.xxh64 for shard in bt.Manifest.load(made).shards),
        key=[file["digest"] for file in listed].index,
    )


@pytest.mark.slow
def test_another_dataset_of_the_same_sizes_is_another_input(tmp_path):
    for name, first in (("a", 100), ("b", 200)):
        pq.write_table(table(50, first), tmp_path / f"{name}.parquet")
        bt.write(tmp_path / f"{name}.parquet", tmp_path / name)
    bt.write(tmp_path / "a", tmp_path / "out")
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b").rename(tmp_path / "a")
    with pytest.raises(TargetExists, match=r"input edited: data-00000-of-00001\.tfrecord"):
        bt.write(tmp_path / "a", tmp_path / "out")


@pytest.mark.slow
def test_a_shard_is_of_its_dataset_however_it_is_named(made, tmp_path):
    one = bt.write(made / "train-00000-of-00002.tfrecord", tmp_path / "one")
    assert set(one.splits) == {"train"}
    assert [f.type for f in one.schema.features] == [f.type for f in bt.load(made).schema.features]
    train = bt.write(f"{made}/train-*.tfrecord", tmp_path / "train")
    assert train.examples == len(bt.load(made, split="train"))
    assert all(feature.observed is None for feature in train.schema.features)
    assert bt.verify(tmp_path / "train").ok


@pytest.mark.slow
def test_several_datasets_become_one(tmp_path):
    for name, first in (("a", 0), ("b", 100)):
        pq.write_table(table(50, first), tmp_path / f"{name}.parquet")
        bt.write(tmp_path / f"{name}.parquet", tmp_path / name, splits="train=0.5,test=0.5")
    after = bt.write([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert shown_rows(tmp_path / "out") == sorted(
        shown_rows(tmp_path / "a") + shown_rows(tmp_path / "b")
    )
    observed = after.schema["id"].observed
    assert (observed.min, observed.max, observed.missing) == (0, 149, 0)  # type: ignore[union-attr]
    assert bt.verify(tmp_path / "out").ok


@pytest.mark.slow
def test_datasets_that_differ_are_refused_by_column(tmp_path):
    tables = {"a": {"id": [1], "n": [1.5]}, "b": {"id": [1], "n": [2]}, "c": {"id": [2]}}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        bt.write(tmp_path / f"{name}.parquet", tmp_path / name)
    a, b, c = (str(tmp_path / name) for name in "abc")
    message = rf"column 'n' is double in '{a}' but int64 in '{b}': write both again"
    with pytest.raises(BeamTFRecordError, match=message):
        bt.write([a, b], tmp_path / "out")
    message = rf"column 'n' is in '{a}' but not in '{c}': pass --union"
    with pytest.raises(BeamTFRecordError, match=message):
        bt.write([a, c], tmp_path / "out")
    joined = bt.write([a, c], tmp_path / "out", union=True)
    assert shown_rows(tmp_path / "out") == ["{'id': 1, 'n': 1.5}", "{'id': 2, 'n': None}"]
    assert joined.schema["n"].observed.missing == 1  # type: ignore[union-attr]
    assert bt.verify(tmp_path / "out").ok


@pytest.mark.parametrize("inside", ["", "sub", "sub/sub"])
def test_an_output_in_the_input_is_refused(made, tmp_path, inside):
    shutil.copytree(made, tmp_path / "ds")
    before = sorted(path.name for path in (tmp_path / "ds").iterdir())
    with pytest.raises(UsageError, match="write to another directory"):
        bt.write(tmp_path / "ds", tmp_path / "ds" / inside, overwrite=True)
    with pytest.raises(UsageError, match="write to another directory"):
        bt.write(f"{tmp_path}/ds/*.tfrecord", tmp_path / "ds", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "ds").iterdir()) == before


def test_a_shard_that_is_another_one_is_refused(made, tmp_path):
    """Same size, same number of records, right checksums: only its hash differs."""
    shutil.copytree(made, tmp_path / "ds")
    shard = tmp_path / "ds/train-00001-of-00002.tfrecord"
    held = list(read_records(shard))
    write_records(shard, [held[1], held[0], *held[2:]])
    with pytest.raises(DataError, match=r"train-00001.* is not the shard that its manifest desc"):
        bt.write(tmp_path / "ds", tmp_path / "out")


@pytest.mark.slow
def test_an_empty_dataset_stays_empty(tmp_path):
    pq.write_table(table(0), tmp_path / "a.parquet")
    bt.write(tmp_path / "a.parquet", tmp_path / "ds")
    for options in ({}, {"key": "id"}):
        out = tmp_path / f"out{len(options)}"
        assert bt.write(tmp_path / "ds", out, **options).examples == 0  # type: ignore[arg-type]
        assert (out / "schema.json").read_text() == (tmp_path / "ds/schema.json").read_text()


def test_a_limit_copies_the_first_rows_without_statistics(made, tmp_path):
    after = bt.write(made, tmp_path / "out", limit=20, shuffle=False)
    assert after.examples == 20
    assert all(feature.observed is None for feature in after.schema.features)
    assert bt.verify(tmp_path / "out").ok


FOREIGN = [
    example(n=1, f=[1.0, 2.0], text="é", image=b"\xff\xd8", many=[1, 2], odd=None),
    example(n=2, f=[3.0, 4.0], text="b", image=b"\xff", many=[], odd=None),
    example(f=[5.0, 6.0], text="", image=b"", many=[3]),
]
TYPES = {
    "f": pa.list_(pa.float32(), 2),
    "image": pa.binary(),
    "many": pa.list_(pa.int64()),
    "n": pa.int64(),
    "text": pa.string(),
}
ROWS = [
    {"f": [1.0, 2.0], "image": b"\xff\xd8", "many": [1, 2], "n": 1, "text": "é"},
    {"f": [3.0, 4.0], "image": b"\xff", "many": [], "n": 2, "text": "b"},
    {"f": [5.0, 6.0], "image": b"", "many": [3], "n": None, "text": ""},
]


def test_a_number_may_follow_either_suffix_in_a_directory(tmp_path):
    names = [
        "a.tfrecord",
        "b.tfrecord-00000-of-00001",
        "c.tfrecord-00000-of-00001.gz",
        "D.TFRecord.GZ-00000-of-00001",
        "e.tfrecords.gz",
    ]
    for number, name in enumerate(names):
        path = tmp_path / "in" / name
        write_records(path, [example(n=number)])
        if "gz" in name.lower() and path.suffix != ".gz":
            path.write_bytes(gzip.compress(path.read_bytes()))
    assert sorted(file.name for file in Tfrecord(tmp_path / "in").files()) == sorted(names)
    bt.write(tmp_path / "in", tmp_path / "out")
    assert {row["n"] for row in bt.load(tmp_path / "out").rows()} == set(range(len(names)))
    for number, name in enumerate(names):
        (tmp_path / f"only{number}").mkdir()
        shutil.copy(tmp_path / "in" / name, tmp_path / f"only{number}" / name)
        assert [row["n"] for row in bt.load(tmp_path / f"only{number}").rows()] == [number]


@pytest.mark.parametrize("columns", [None, list(TYPES)])
def test_files_of_others_become_a_dataset(tmp_path, columns):
    write_records(tmp_path / "in/a.tfrecord.gz", FOREIGN[:2])
    write_records(tmp_path / "in/b.tfrecord", FOREIGN[2:])
    after = bt.write(tmp_path / "in", tmp_path / "out", shuffle=False, columns=columns)
    assert {f.name: f.type for f in after.schema.features} == TYPES
    assert [f.nullable for f in after.schema.features] == [f == "n" for f in TYPES]
    found = [{**row, "f": list(row["f"])} for row in bt.load(tmp_path / "out").rows()]
    assert found == ROWS
    assert bt.verify(tmp_path / "out").ok
    if columns is None:
        (shard,) = after.shards
        assert list(read_records(tmp_path / "out" / shard.path)) == FOREIGN


# Its second field holds lists, which an Example does not have.
SEQUENCE_EXAMPLE = example(n=1) + wire.field(2, wire.field(1, wire.field(1, b"l")))


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("columns", [None, ["n"]])
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"hello", r"a\.tfrecord record 4: not a .*tf\.train\.Example"),
        (b"\x08\x01", r"a\.tfrecord record 4: not a plain tf\.train\.Example"),
        (SEQUENCE_EXAMPLE, r"a\.tfrecord record 4: not a plain tf\.train\.Example \(a Sequence"),
        (example(n="text"), r"a\.tfrecord record 4: feature 'n' is of another kind"),
    ],
)
def test_other_records_are_refused_with_their_address(tmp_path, payload, message, columns):
    write_records(tmp_path / "a.tfrecord", [*[example(n=1)] * 4, payload, example(n=2)])
    with pytest.raises(DataError, match=message) as caught:
        bt.write(tmp_path / "a.tfrecord", tmp_path / "out", columns=columns)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize("columns", [None, ["n"]])
def test_files_whose_kinds_differ_are_both_named(tmp_path, columns):
    write_records(tmp_path / "in/a.tfrecord", [example(n=1)])
    write_records(tmp_path / "in/b.tfrecord", [example(n="one")])
    message = r"feature 'n' is bytes in b\.tfrecord but int64 in a\.tfrecord"
    with pytest.raises(DataError, match=message):
        bt.write(tmp_path / "in", tmp_path / "out", columns=columns)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("before", [0, 3])
def test_a_record_that_no_example_can_be_is_refused_by_its_length(tmp_path, before, suffix):
    length = struct.pack("<Q", 2**31)
    data = b"".join(map(framed, [example(n=1)] * before))
    data += length + struct.pack("<I", masked_crc(length)) + bytes(2**24)
    path = tmp_path / f"a.tfrecord{suffix}"
    path.write_bytes(gzip.compress(data, 1) if suffix else data)
    message = (
        rf"^a\.tfrecord{suffix} is damaged at byte \d+ \(record {before}\): it has 2,147,483,648 "
        r"bytes, and an example has at most 2,147,483,647"
    )
    with pytest.raises(DataError, match=message):
        bt.write(path, tmp_path / "out")


@given(bit=st.integers(0, 8 * 2000), copies=st.booleans())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_flipped_bit_is_refused(tmp_path_factory, bit, copies):
    data = bytearray(b"".join(framed(example(n=number, s=f"é{number}")) for number in range(30)))
    bit %= 8 * len(data)
    data[bit // 8] ^= 1 << bit % 8
    path = tmp_path_factory.mktemp("flip") / "a.tfrecord"
    path.write_bytes(data)
    source = copying(Tfrecord(path)) if copies else Tfrecord(path)
    with pytest.raises(DataError, match=r"^a\.tfrecord (is|has) ") as caught:
        list(source.batches())
    assert "\n" not in str(caught.value)


def test_units_begin_at_records_whatever_records_hold(tmp_path, monkeypatch):
    """A record may itself hold TFRecord bytes, so a search for frames would cut inside it."""
    monkeypatch.setattr(Tfrecord, "unit_bytes", 1000)
    inner = b"".join(map(framed, [example(n=number) for number in range(40)]))
    huge = example(inner=b"x" * 2_500_000)
    held = [example(inner=inner), huge, *[example(inner=inner)] * 5, huge, example(inner=b"z")]
    write_records(tmp_path / "a.tfrecord", held)
    source = Tfrecord(tmp_path / "a.tfrecord")
    assert len(source.all_units(source.all_scans())) == len(held)
    bt.write(tmp_path / "a.tfrecord", tmp_path / "out", shuffle=False)
    (shard,) = bt.Manifest.load(tmp_path / "out").shards
    assert list(read_records(tmp_path / "out" / shard.path)) == held


def test_a_missing_or_torn_shard_of_a_dataset_is_refused(made, tmp_path):
    shutil.copytree(made, tmp_path / "ds")
    shard = tmp_path / "ds/train-00001-of-00002.tfrecord"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(DataError, match=r"train-00001.* has [\d,]+ bytes but the manifest of its"):
        bt.write(tmp_path / "ds", tmp_path / "out")
    shard.unlink()
    with pytest.raises(DataError, match=r"train-00001.* of its dataset is missing: run verify"):
        bt.write(tmp_path / "ds", tmp_path / "out")
    text = (tmp_path / "ds/manifest.json").read_text()
    (tmp_path / "ds/manifest.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(DataError, match=r"manifest\.json"):
        bt.write(f"{tmp_path}/ds/*.tfrecord", tmp_path / "out")


def test_a_shard_and_a_file_of_others_do_not_mix(made, tmp_path):
    write_records(tmp_path / "z.tfrecord", FOREIGN)
    with pytest.raises(UsageError, match=r"is of a dataset but .*z\.tfrecord is not"):
        bt.write([made, tmp_path / "z.tfrecord"], tmp_path / "out")
