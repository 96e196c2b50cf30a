"""Blocks of the Java helper as Arrow record batches: one copy, and no Python object a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

_ALIGNMENT = 64


def copy_of(block: Any) -> pa.Buffer:
    """Copy a block, a direct ``ByteBuffer``, out of Java, which will write over it."""
    data = memoryview(block).cast("B")
    copy = pa.allocate_buffer(len(data))
    memoryview(copy).cast("B")[:] = data
    return copy


def layout_of(blocks: Any) -> Sequence[int]:
    """Return the numbers that ``RowBlocks.layout`` describes."""
    return memoryview(blocks.layout()).cast("B").cast("i")


def arrays_of(
    block: pa.Buffer, layout: Sequence[int], types: Sequence[pa.DataType], rows: int
) -> list[pa.Array]:
    """Return the columns of a block without copying it.

    Args:
        block: The bytes of the block.
        layout: NULLs and length of the variable part, by column, items of lists after the lists.
        types: Arrow types of the columns, as the helper was told to write them.
        rows: Number of rows.
    """
    pieces = _Pieces(block)
    numbers = iter(layout)
    return [_array(arrow, rows, pieces, numbers) for arrow in types]


def _array(arrow: pa.DataType, count: int, pieces: _Pieces, numbers: Iterator[int]) -> pa.Array:
    nulls, variable = next(numbers), next(numbers)
    validity = pieces.take((count + 7) // 8)
    known = validity if nulls else None
    if pa.types.is_list(arrow):
        offsets = pieces.take(4 * (count + 1))
        items = _array(arrow.value_type, variable, pieces, numbers)
        return pa.Array.from_buffers(arrow, count, [known, offsets], nulls, children=[items])
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        buffers = [pieces.take(4 * (count + 1)), pieces.take(variable)]
    else:
        buffers = [pieces.take((count * arrow.bit_width + 7) // 8)]
    return pa.Array.from_buffers(arrow, count, [known, *buffers], nulls)


class _Pieces:
    """Buffers cut from a block one after the other."""

    def __init__(self, block: pa.Buffer) -> None:
        self._block = block
        self._position = 0

    def take(self, size: int) -> pa.Buffer:
        """Return the next `size` bytes."""
        piece = self._block.slice(self._position, size)
        self._position += -(-size // _ALIGNMENT) * _ALIGNMENT
        return piece
