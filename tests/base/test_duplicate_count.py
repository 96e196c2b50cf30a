"""Counting rows of equal content."""

import random

import pyarrow as pa
import pytest

from beam_tfrecord import duplicate_count as copies_module
from beam_tfrecord.duplicate_count import (
    DuplicateCount,
    count_duplicates,
    duplicate_lines,
    duplicates_to_json,
    mark_content,
)


def of(*texts):
    return DuplicateCount.of(pa.array(texts, pa.string()))


def test_copies_are_counted_across_parts_in_any_order():
    parts = [of("a", "b", "a"), of("c"), of(), of("b", "a", None)]
    for seed in range(5):
        total = DuplicateCount()
        for part in random.Random(seed).sample(parts, len(parts)):
            total = total.merge(part)
        assert (total.number, total.is_exact) == (3, True)


def test_merging_is_associative():
    one, two, three = of("a", "b"), of("b", "c"), of("c", "c")
    assert one.merge(two).merge(three) == one.merge(two.merge(three))


def labelled(*rows):
    texts, labels = zip(*rows, strict=True)
    schema = pa.schema(
        [mark_content(pa.field("x", pa.string()), label="y"), pa.field("y", pa.int64())]
    )
    found = count_duplicates(
        pa.RecordBatch.from_arrays([pa.array(texts), pa.array(labels)], schema=schema)
    )
    assert found is not None
    return found


def test_content_under_several_labels_is_counted_across_parts_in_any_order():
    parts = [
        labelled(("a", 1), ("b", 2), ("b", 2), (None, 5)),
        labelled(("a", 2), ("c", 0), ("d", -1)),
        labelled(("a", 3), ("b", 2), ("d", -1), ("e", 4)),
    ]
    for seed in range(5):
        total = DuplicateCount()
        for part in random.Random(seed).sample(parts, len(parts)):
            total = total.merge(part)
        assert (total.number, total.mixed) == (5, 1)


@pytest.mark.parametrize(
    ("rows", "exact", "mixed", "lines"),
    [
        (0, True, 0, []),
        (1, True, None, ["1 row is a duplicate of another by content"]),
        (1200, False, 0, ["about 1,200 rows are duplicates of others by content"]),
        (
            3,
            True,
            1,
            [
                "3 rows are duplicates of others by content",
                "1 duplicated content has several labels: correct the wrong ones",
            ],
        ),
    ],
)
def test_lines_are_grammatical(rows, exact, mixed, lines):
    told = {"rows": rows, "exact": exact, "contents_of_several_labels": mixed}
    assert duplicate_lines(told) == lines


def test_beyond_the_limit_the_number_is_an_estimate(monkeypatch):
    monkeypatch.setattr(copies_module, "MAX_HASHES", 1000)
    # 20,000 contents, every fourth of them twice.
    texts = [str(i) for i in range(20_000)] + [str(i) for i in range(0, 20_000, 4)]
    total = DuplicateCount()
    for start in range(0, len(texts), 500):
        total = total.merge(of(*texts[start : start + 500]))
    assert not total.is_exact
    assert len(total.hashes) <= 8 * 1000
    assert 4000 < total.number < 6000
    assert total == of(*texts)


def test_only_a_marked_column_is_counted():
    column = pa.array(["a", "a", "b"])
    plain = pa.RecordBatch.from_arrays([column], names=["x"])
    assert count_duplicates(plain) is None
    schema = pa.schema([mark_content(pa.field("x", pa.string()))])
    found = count_duplicates(pa.RecordBatch.from_arrays([column], schema=schema))
    assert duplicates_to_json(found) == {
        "rows": 1,
        "exact": True,
        "contents_of_several_labels": None,
    }
    assert duplicates_to_json(None) is None
