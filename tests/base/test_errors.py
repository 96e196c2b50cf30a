"""Errors as they are shown."""

import linecache

import pytest

from beam_tfrecord.errors import DataError, UsageError


def test_a_notebook_shows_the_line_and_the_message(tmp_path):
    # As IPython runs a cell: the source is in `linecache`, and `_render_traceback_` is asked.
    cell = f"import beam_tfrecord as bt\nbt.load({str(tmp_path / 'none')!r})"
    linecache.cache["<cell>"] = (len(cell), None, cell.splitlines(keepends=True), "<cell>")
    with pytest.raises(UsageError) as caught:
        exec(compile(cell, "<cell>", "exec"), {"__name__": "__main__"})
    shown = caught.value._render_traceback_()
    assert shown == [f"line 2: bt.load({str(tmp_path / 'none')!r})", f"UsageError: {caught.value}"]


def test_a_notebook_shows_at_most_12_lines():
    message = "\n  ".join(f"row {number}" for number in range(50))
    with pytest.raises(DataError) as caught:
        raise DataError(message)
    shown = caught.value._render_traceback_()
    assert len(shown) == 12
    assert shown[1:3] == ["DataError: row 0", "  row 1"]
    assert shown[-1] == "  …"
