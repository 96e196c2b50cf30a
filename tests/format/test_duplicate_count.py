"""Counting rows of equal content."""

import random

import pyarrow as pa

from beam_tfrecord.format.tally import DuplicateCount, count_duplicates, mark_content


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
