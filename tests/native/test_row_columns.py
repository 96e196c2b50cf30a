"""Rows of Python as columns, against an oracle in Python."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beam_tfrecord import native


class Text(str):
    """Names of this class may have another idea of what is equal."""

    __slots__ = ()


VALUES = st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.booleans()
ROWS = st.dictionaries(st.sampled_from(["a", "b", "ä", "", Text("a"), 1]), VALUES, max_size=4)


def kind_of(values):
    kinds = set(map(type, values)) - {type(None)} or {type(None)}
    return kinds.pop() if len(kinds) == 1 else None


@given(st.lists(ROWS, max_size=4) | st.lists(ROWS, max_size=1).map(lambda some: some * 3))
def test_rows_with_the_same_names_become_columns(rows):
    is_plain = all(type(name) is str for row in rows for name in row)
    found = native.columns_of(rows)
    if not rows or len(set(map(tuple, rows))) > 1 or not is_plain:
        assert found is None
        return
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    assert list(found) == list(columns)
    for name, values in columns.items():
        kind, held = found[name]
        assert held == values or all(one is other for one, other in zip(held, values, strict=True))
        assert kind is kind_of(values)


@given(VALUES, VALUES)
def test_other_rows_stay(one, other):
    rows = ([{"a": one}, {"b": other}], [{"a": one, "b": 1}, {"b": 1, "a": other}], [one, other])
    assert all(native.columns_of(list(some)) is None for some in rows)
    assert native.columns_of([{"a": one}, {"a": other, "b": one}]) is None
    assert native.columns_of([]) is None
