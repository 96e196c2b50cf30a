"""Counting rows of equal content."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from beam_tfrecord import copies as copies_module
from beam_tfrecord.copies import Copies, copies_in, copies_told, mark_content


def of(*texts: str | None) -> Copies:
    return Copies.of(pa.array(texts, pa.string()))


def test_copies_are_counted_across_parts_in_any_order() -> None:
    parts = [of("a", "b", "a"), of("c"), of(), of("b", "a", None)]
    for seed in range(5):
        total = Copies()
        for part in random.Random(seed).sample(parts, len(parts)):
            total = total.merge(part)
        assert (total.number, total.is_exact) == (3, True)


def test_merging_is_associative() -> None:
    one, two, three = of("a", "b"), of("b", "c"), of("c", "c")
    assert one.merge(two).merge(three) == one.merge(two.merge(three))


def test_beyond_the_limit_the_number_is_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "MAX_HASHES", 1000)
    # 20,000 contents, every fourth of them twice.
    texts = [str(i) for i in range(20_000)] + [str(i) for i in range(0, 20_000, 4)]
    total = Copies()
    for start in range(0, len(texts), 500):
        total = total.merge(of(*texts[start : start + 500]))
    assert not total.is_exact
    assert len(total.hashes) <= 8 * 1000
    assert 4000 < total.number < 6000
    assert total == of(*texts)


def test_only_a_marked_column_is_counted() -> None:
    column = pa.array(["a", "a", "b"])
    plain = pa.RecordBatch.from_arrays([column], names=["x"])
    assert copies_in(plain) is None
    schema = pa.schema([mark_content(pa.field("x", pa.string()))])
    found = copies_in(pa.RecordBatch.from_arrays([column], schema=schema))
    assert copies_told(found) == {"rows": 1, "exact": True}
    assert copies_told(None) is None
