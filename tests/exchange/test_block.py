import pyarrow as pa
import pytest

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.exchange.block import Block
from beam_tfrecord.format.layout import Layout, Splits
from beam_tfrecord.format.sort_keys import Lineage
from beam_tfrecord.rows.batch import Batch, Origin, batch_of_examples
from tests.native import wire

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
    return [block.split_names[number] for number in block.splits]


def rows(columns, origin=None):
    return Batch(pa.record_batch(columns), origin)


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


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (rows({"part": ["a/b"]}), DataError, "split 'a/b' cannot be part of a file name"),
        (rows({"part": [""]}), DataError, "split '' cannot be part of a file name"),
        (rows({"part": [[1]]}), DataError, "column 'part' is list.* and cannot name splits"),
        (rows({"part": [b"\xff"]}), DataError, "column 'part' is binary and cannot name splits"),
        (rows({"x": [1]}), UsageError, "column 'part' of --split-column is not in the rows: "),
        (batch_of_examples([EXAMPLE]), UsageError, "'part' .* is not in the examples: "),
        (rows({"part": [*range(1001)]}), DataError, "column 'part' names more than 1000 splits"),
    ],
)
def test_what_cannot_be_split_is_refused(batch, error, message):
    with pytest.raises(error, match=message):
        Block(BY_COLUMN).add(batch)


def test_one_row_in_two_serializations_is_in_one_split():
    feature = {name: bytes.fromhex(f"0a0a0a01{name}12051a030a0105") for name in ("78", "79")}
    one = b"\x0a\x18" + feature["78"] + feature["79"]
    two = b"\x0a\x18" + feature["79"] + feature["78"]
    for seed in range(8):
        block = block_of(Layout(splits=Splits(HALVES), seed=seed), batch_of_examples([one, two]))
        assert len(set(by_split(block))) == 1


def splits_of(examples, payloads):
    block = Block(Layout(splits=Splits(HALVES)), inputs=Lineage(examples=examples))
    block.add(batch_of_examples(payloads, origin=Origin("u", 0, 0)))
    return by_split(block)


def test_examples_are_split_alike_however_much_is_known_of_them():
    entry = {name: wire.feature_entry(name, 3, [b"\5"]) for name in (b"x", b"y")}
    payloads = [
        wire.field(1, entry[name] + wire.feature_entry(b"n", 3, [wire.varint(number)]))
        for name in (b"x", b"y")
        for number in range(40)
    ]
    expected = splits_of("known", payloads)
    assert set(expected) == {"a", "b"}
    assert [splits_of(mode, payloads) for mode in ("own", "any", "found")] == [expected] * 3
    # Neither an example with an unknown field nor other bytes change the splits of the others.
    others = [payloads[0] + b"\x38\1", b"no example"]
    assert splits_of("any", payloads + others) == splits_of("known", payloads + others)
    assert splits_of("any", payloads + others)[:-2] == expected


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
