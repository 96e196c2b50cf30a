"""Counting rows of equal content."""

import random

import pyarrow as pa

from beam_tfrecord.format import tally as copies_module
from beam_tfrecord.format.tally import DuplicateCount, count_duplicates, mark_content


def counted(texts, **labels):
    field = mark_content(pa.field("x", pa.string()), label="y")
    fields = [field, *(pa.field(name, pa.int64()) for name in labels)]
    columns = [pa.array(column) for column in (texts, *labels.values())]
    return count_duplicates(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)))


def labelled(*rows):
    texts, labels = zip(*rows, strict=True)
    return counted(texts, y=labels)


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


def test_beyond_the_limit_the_number_is_an_estimate(monkeypatch):
    monkeypatch.setattr(copies_module, "MAX_HASHES", 1000)
    # 20,000 contents, every fourth of them twice.
    texts = [str(i) for i in range(20_000)] + [str(i) for i in range(0, 20_000, 4)]
    total = DuplicateCount()
    for start in range(0, len(texts), 500):
        total = total.merge(counted(texts[start : start + 500]))
    assert not total.is_exact
    assert len(total.hashes) <= 8 * 1000
    assert 4000 < total.number < 6000
    assert total == counted(texts)
