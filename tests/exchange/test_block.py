from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from beam_tfrecord.batch import Batch, Origin, batch_of_examples
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange import block as module
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.exchange.tally import merge_tallies
from beam_tfrecord.images import Refused
from beam_tfrecord.layout import Layout, Splits
from beam_tfrecord.places import Inputs, purpose_seed
from tests.exchange.making import batch_of

HALVES = (("a", 0.5), ("b", 0.5))
BY_COLUMN = Layout(splits=Splits((), "part"))
# {"x": int64 5} in canonical form.
EXAMPLE = bytes.fromhex("0a0c0a0a0a017812051a030a0105")


def block_of(layout, *batches):
    block = Block(layout)
    for batch in batches:
        block.add(batch)
    return block


def by_split(block):
    assert block.splits is not None
    return [block.split_names[number] for number in block.splits]


def rows(columns: dict[str, Any], origin: Origin | None = None) -> Batch:
    return Batch(pa.record_batch(columns), origin)


def test_records_are_framed_one_after_another():
    block = block_of(Layout(), batch_of([5, 6]), batch_of([7], first=2))
    assert (block.records, block.size) == (3, 3 * 30)
    assert block.arena.used_starts().tolist() == [0, 30, 60]
    assert block.arena.data[12:26].tobytes() == EXAMPLE
    assert block.splits is None
    assert (block.tally.rows, block.tally.records) == (3, 3)


def test_a_split_follows_from_the_bytes_and_a_place_from_the_row():
    layout = Layout(splits=Splits(HALVES), seed=3)
    block = block_of(layout, batch_of([5] * 50))
    bucket = xxhash.xxh64_intdigest(EXAMPLE, purpose_seed(3, "split")) >> 63
    assert by_split(block) == ["ab"[bucket]] * 50
    assert len(set(block.places.tolist())) == 50


def test_rows_without_origin_have_places_by_their_bytes():
    plain = batch_of([5, 6]).replace(origin=None)
    block = block_of(Layout(seed=3), plain)
    seed = purpose_seed(3, "place")
    assert block.places[0] == xxhash.xxh64_intdigest(EXAMPLE, seed)
    assert block.tally.places_by_bytes
    assert not block_of(Layout(), batch_of([5])).tally.places_by_bytes
    assert not block_of(Layout(key=("x",)), plain).tally.places_by_bytes


def test_equal_keys_have_equal_places_and_splits_wherever_they_are():
    layout = Layout(splits=Splits(HALVES), key=("k",))
    one = rows({"k": [1, 2, 1], "y": [0.5, 1.5, 2.5]}, Origin("u", 0, 0))
    two = rows({"k": [2], "y": [9.5]}, Origin("v", 1, 7))
    block = block_of(layout, one, two)
    first, second, third, fourth = block.places.tolist()
    assert (first, second) == (third, fourth)
    assert first != second
    splits = by_split(block)
    assert (splits[0], splits[1]) == (splits[2], splits[3])


def test_a_group_decides_the_split_but_not_the_place():
    layout = Layout(splits=Splits(HALVES, group=("g",)))
    block = block_of(layout, rows({"g": [1, 2] * 20, "y": [*range(40)]}, Origin("u", 0, 0)))
    splits = by_split(block)
    assert splits == splits[:2] * 20
    assert len(set(block.places.tolist())) == 40


def test_seeds_change_places_and_splits():
    one, two = (
        block_of(Layout(splits=Splits(HALVES), seed=seed), batch_of([*range(64)]))
        for seed in (0, 1)
    )
    assert not set(one.places.tolist()) & set(two.places.tolist())
    assert by_split(one) != by_split(two)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["t", None, "v", "t"]),
        pa.array(["t", None, "v", "t"], pa.large_string()),
        pa.array(["t", None, "v", "t"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays([0, 1, 2, 0], pa.array(["t", None, "v"])),
    ],
    ids=["string", "large", "dictionary", "null in dictionary"],
)
def test_a_column_names_splits_and_a_row_without_is_a_reject(column):
    block = Block(BY_COLUMN)
    written = block.add(rows({"x": [0, 1, 2, 3], "part": column}, Origin("u", 0, 10)))
    assert written.tolist() == [0, 2, 3]
    assert by_split(block) == ["t", "v", "t"]
    [reject] = block.rejects
    assert (reject.unit, reject.row, reject.column, reject.code) == ("u", 11, "part", "no-split")
    assert (block.tally.rows, block.tally.records, block.tally.rejects) == (4, 3, 1)


def test_refused_pictures_are_counted_beside_rows_without_a_split():
    refused = Refused(1, "a.png", "reason", "cure")
    batch = rows({"part": ["a", None], "x": [1, 2]}).replace(refused=refused)
    assert block_of(BY_COLUMN, batch).tally.refused == refused


def test_numbers_name_splits_too():
    assert by_split(block_of(BY_COLUMN, rows({"part": [1, 0, 1]}))) == ["1", "0", "1"]


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (rows({"part": ["a/b"]}), DataError, "split 'a/b' cannot be part of a file name"),
        (rows({"part": [""]}), DataError, "split '' cannot be part of a file name"),
        (rows({"part": [[1]]}), DataError, "column 'part' is list.* and cannot name splits"),
        (rows({"part": [b"\xff"]}), DataError, "column 'part' is binary and cannot name splits"),
        (
            rows({"x": [1]}),
            UsageError,
            "column 'part' of --split-column is not in the rows: ",
        ),
        (batch_of_examples([EXAMPLE]), UsageError, "'part' .* is not in the examples: "),
        (rows({"part": [*range(1001)]}), DataError, "column 'part' names more than 1000 splits"),
    ],
)
def test_what_cannot_be_split_is_refused(batch, error, message):
    with pytest.raises(error, match=message):
        Block(BY_COLUMN).add(batch)


def test_assigned_splits_are_kept():
    assigned = batch_of([3], first=2).replace(split="test")
    assert by_split(block_of(Layout(), batch_of([]), assigned, assigned)) == ["test", "test"]
    block = Block(Layout(splits=Splits(HALVES)), inputs=Inputs(have_splits=True))
    block.add(assigned)
    assert by_split(block) == ["test"]


@pytest.mark.parametrize(
    "splits", [Splits(HALVES), Splits((), "part"), Splits(group=("x",))], ids=str
)
def test_splits_that_are_said_twice_are_refused(splits):
    with pytest.raises(DataError, match="leave out splits, split_column and group"):
        Block(Layout(splits=splits)).add(batch_of([3]).replace(split="test"))


@pytest.mark.parametrize("names", [(None, "a"), ("a", None), ("a", "b", None)])
def test_rows_of_which_some_have_a_split_are_refused(names):
    batches = [batch_of([n], first=n).replace(split=name) for n, name in enumerate(names)]
    with pytest.raises(DataError, match="some rows have no split"):
        block_of(Layout(), *batches)
    # Two workers may see a part each.
    tallies = [block_of(Layout(), batch).tally for batch in batches]
    with pytest.raises(DataError, match="some rows have no split"):
        merge_tallies(tallies)


def test_a_missing_key_is_refused():
    with pytest.raises(
        UsageError, match="column 'k' of --key is not in the rows: the columns are x"
    ):
        Block(Layout(key=("k",))).add(batch_of([1]))
    with pytest.raises(UsageError, match="'k' of --key is not in the examples: the columns are x"):
        Block(Layout(key=("k",))).add(batch_of_examples([EXAMPLE]))


def test_examples_are_written_untouched_and_their_features_found():
    block = block_of(Layout(), batch_of_examples([EXAMPLE, EXAMPLE], origin=Origin("u", 0, 0)))
    assert block.arena.data[12:26].tobytes() == EXAMPLE
    assert block.tally.final_schema().to_arrow() == pa.schema(
        [pa.field("x", pa.int64(), nullable=False)]
    )


def test_one_row_in_two_serializations_is_in_one_split():
    feature = {name: bytes.fromhex(f"0a0a0a01{name}12051a030a0105") for name in ("78", "79")}
    one = b"\x0a\x18" + feature["78"] + feature["79"]
    two = b"\x0a\x18" + feature["79"] + feature["78"]
    for seed in range(8):
        block = block_of(Layout(splits=Splits(HALVES), seed=seed), batch_of_examples([one, two]))
        assert len(set(by_split(block))) == 1


def test_bytes_that_a_coder_made_are_written_without_a_schema():
    block = Block(Layout(), inputs=Inputs(examples="any"))
    block.add(batch_of_examples([EXAMPLE, b"garbage"]))
    assert block.records == 2
    assert block.tally.opaque
    with pytest.raises(UsageError, match="b'garbage': it is not a serialized"):
        block_of(Layout(), batch_of_examples([EXAMPLE, b"garbage"]))


def test_a_feature_of_two_kinds_is_refused_in_one_batch_or_two():
    floats = bytes.fromhex("0a0f0a0d0a0178120812060a0400000040")
    block = block_of(Layout(), batch_of_examples([EXAMPLE]))
    with pytest.raises(DataError, match="feature 'x' has values of two kinds"):
        block.add(batch_of_examples([floats]))
    with pytest.raises(DataError, match="feature 'x' is of another kind than before"):
        Block(Layout()).add(batch_of_examples([EXAMPLE, floats]))


def test_an_example_without_a_feature_that_is_named_is_refused():
    batch = batch_of_examples([EXAMPLE, b""])
    with pytest.raises(UsageError, match=r"feature 'x' of (--key|key) is not in all examples"):
        block_of(Layout(key=("x",)), batch)


def test_rows_that_cannot_be_encoded_are_rejects():
    block = Block(Layout())
    batch = rows({"x": pa.array([1, 2**64 - 1, 3], pa.uint64())}, Origin("u", 0, 5))
    assert block.add(batch).tolist() == [0, 2]
    assert [(reject.unit, reject.row, reject.column) for reject in block.rejects] == [("u", 6, "x")]
    whole = block_of(Layout(), batch_of([1, 2, 3], first=5))
    assert block.places.tolist() == whole.places[[0, 2]].tolist()


def test_pieces_are_of_bounded_size(monkeypatch):
    monkeypatch.setattr(module, "PIECE_BYTES", 32)
    pieces = list(Block(Layout()).pieces(batch_of([*range(10)])))
    assert [piece.data.column(0).to_pylist() for piece in pieces] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert [piece.origin and piece.origin.rows for piece in pieces] == [0, 4, 8]
    assert [piece.num_rows for piece in Block(Layout()).pieces(batch_of([]))] == [0]


def test_a_cleared_block_begins_anew():
    block = block_of(Layout(splits=Splits(HALVES)), batch_of([*range(9)]))
    block.clear()
    assert (block.records, block.size, len(block.places), block.tally.rows) == (0, 0, 0, 0)
    assert block.splits is not None
    assert len(block.splits) == 0
    block.add(batch_of([1, 2]))
    fresh = block_of(Layout(splits=Splits(HALVES)), batch_of([1, 2]))
    assert block.places.tolist() == fresh.places.tolist()
    assert by_split(block) == by_split(fresh)
    assert np.array_equal(block.arena.used_starts(), fresh.arena.used_starts())
