import numpy as np
import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.format.layout import Splits, is_split_name
from beam_tfrecord.selection.select import make_splits


def numbers(splits, hashes):
    return splits.assign(np.array(hashes, np.uint64)).tolist()


def test_a_split_of_share_zero_gets_nothing():
    hashes = [0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2]
    first = Splits((("none", 0.0), ("all", 1.0)))
    assert numbers(first, hashes) == [1, 1, 1, 1, 1, 1]
    middle = Splits((("a", 0.5), ("none", 0.0), ("b", 0.5)))
    assert numbers(middle, hashes) == [0, 0, 0, 2, 2, 2]
    last = Splits((("all", 1.0), ("none", 0.0)))
    assert numbers(last, hashes) == [0, 0, 0, 0, 0, 0]


def test_renaming_and_dividing_the_rest_moves_no_row_of_the_first_split():
    hashes = np.random.default_rng(0).integers(0, 2**64, 10_000, np.uint64, endpoint=False)
    two = Splits((("train", 0.8), ("test", 0.2))).assign(hashes)
    three = Splits((("learn", 0.8), ("val", 0.1), ("test", 0.1))).assign(hashes)
    assert np.array_equal(two == 0, three == 0)
    # The standard deviation of 10,000 draws at 0.8 is 40 rows.
    assert abs(int((two == 0).sum()) - 8000) < 200


def test_shares_are_parsed():
    shares = (("train", 0.9), ("test", 0.1))
    assert make_splits("train=0.9, test=.1").fractions == shares
    assert make_splits("train=0.9,test=rest").fractions == (shares[0], ("test", pytest.approx(0.1)))
    assert make_splits("train=0.9,test=0.1") == make_splits({"train": 0.9, "test": 0.1})
    assert make_splits({"b": 0.5, "a": 0.5}).names == ("b", "a")
    assert make_splits(None, group=["user"]) == Splits(group=("user",))


@pytest.mark.parametrize("text", ["train", "train=", "a=0.5,a=0.5", "a=0.5,,b=0.5"])
def test_shares_of_another_form_are_refused(text):
    with pytest.raises(
        UsageError, match=f"cannot read splits '{text}': name each split with its share"
    ):
        make_splits(text)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"a": 0.5, "b": 0.4}, "splits sum to 0.9, not to 1: a=0.5, b=0.4"),
        ({"a": 1.5, "b": -0.5}, "split 'a' has share 1.5: give a fraction from 0 to 1"),
        ({"a/b": 1.0}, "split name 'a/b' cannot be part of a file name"),
        ({"": 1.0}, "split name '' cannot be part of a file name"),
    ],
)
def test_wrong_shares_are_refused(splits, message):
    with pytest.raises(UsageError) as caught:
        make_splits(splits)
    assert message in str(caught.value)


def test_shares_that_sum_to_one_but_for_rounding_are_taken():
    splits = make_splits(dict.fromkeys("abcdefghij", 0.1))
    assert numbers(splits, [2**64 - 1]) == [9]


def test_a_split_column_excludes_shares_and_groups():
    splits = make_splits(None, column="part")
    assert splits.names == ()
    assert not splits.is_single
    for others in ({"splits": {"a": 1.0}}, {"splits": None, "group": ["user"]}):
        with pytest.raises(UsageError, match="--split-column already says where rows go"):
            make_splits(**others, column="part")


@pytest.mark.parametrize("name", ["", ".hidden", "_x", "-x", "a b", "a/b", "é", "a\n", "A" * 101])
def test_names_that_cannot_begin_a_file_name(name):
    assert not is_split_name(name)


def test_shares_without_names_and_a_wrong_sum_say_what_to_pass():
    with pytest.raises(UsageError, match=r"no names: pass .* \{'train': 0.8, 'test': 0.2\}"):
        make_splits([0.8, 0.2])
    with pytest.raises(UsageError, match=r"sum to 1.1, .*: change one by 0.1"):
        make_splits("train=0.9,test=0.2")
