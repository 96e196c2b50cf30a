from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord.rows.batch import Batch, Origin, Reject, batch_of_examples

REJECT = Reject("u", 9, "x", "bad-value", "no number")


def batch(origin=None):
    data = pa.record_batch({"x": [0, 10, 20, 30], "y": ["a", None, "c", "d"]})
    return Batch(data, origin or Origin("u", 2, 100), task=4, split="train", rejects=(REJECT,))


def numbers(of: Batch) -> tuple[list[int], list[int] | None]:
    assert of.origin is not None
    sub = of.origin.sub
    return of.origin.row_numbers(of.num_rows).tolist(), None if sub is None else sub.tolist()


SUB = Origin("u", 2, np.array([7, 7, 8, 9]), np.array([0, 1, 0, 0]))


def test_taken_rows_keep_their_numbers():
    taken = batch().take(np.array([2, 0]))
    assert taken.data.to_pydict() == {"x": [20, 0], "y": ["c", "a"]}
    assert numbers(taken) == ([102, 100], None)
    assert (taken.task, taken.split, taken.rejects) == (4, "train", ())
    assert numbers(batch(SUB).take(np.array([3, 1]))) == ([9, 7], [0, 1])
    assert numbers(batch().take(np.array([], np.int64))) == ([], None)


def test_a_slice_keeps_its_numbers():
    part = batch().slice(1, 3)
    assert part.data.to_pydict() == {"x": [10, 20], "y": [None, "c"]}
    assert numbers(part) == ([101, 102], None)
    assert numbers(batch(SUB).slice(1, 3)) == ([7, 8], [1, 0])
    assert numbers(batch(SUB).slice(1, 4).slice(1, 3)) == ([8, 9], [0, 0])


def test_rejects_are_in_one_slice_alone():
    rejects = [batch().slice(start, start + 2).rejects for start in (0, 2)]
    assert rejects == [(REJECT,), ()]


def test_rows_read_are_counted_once():
    read = batch().replace(rows_read=9)
    assert [read.slice(start, start + 2).rows_counted for start in (0, 2)] == [9, 0]
    assert read.take(np.array([1])).rows_counted == 0
    # One reject beside four rows.
    assert batch().rows_counted == 5


@pytest.mark.parametrize(
    "origin", [Origin("u", 0, np.arange(3)), Origin("u", 0, 0, np.zeros(5, np.int64))]
)
def test_an_origin_of_other_rows_is_refused(origin):
    with pytest.raises(ValueError, match=r"origin has \d row numbers for 4 rows"):
        batch(origin)


def test_batches_of_examples_are_marked():
    made = batch_of_examples([b"one", b""], origin=Origin("u", 0, 5))
    assert made.encoded
    assert made.data.column(0).to_pylist() == [b"one", b""]
    assert made.data.schema.field(0).type == pa.large_binary()
    assert numbers(made) == ([5, 6], None)
