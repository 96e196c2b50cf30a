"""What becomes of a column of a ``jdbc:`` database, and the expression that selects it."""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from beam_tfrecord.features.arrow_types import is_text
from beam_tfrecord.sources.sql.engine import SqlColumn
from beam_tfrecord.sources.sql.jdbc.dialects import Product
from beam_tfrecord.sources.sql.jdbc.types import Described, type_of, wanted_type


def column_of(
    described: Described, wanted: pa.DataType | None, *, product: Product, arrays: str
) -> SqlColumn:
    """Return a column as it will be read.

    Args:
        described: What the driver says of it.
        wanted: The type that the user wants; None: its own.
        product: The database.
        arrays: What becomes of arrays: ``refuse``, ``text`` or ``list``.
    """
    quoted = product.dialect.name(described.label)
    natural = type_of(described, arrays=arrays)
    if pa.types.is_float32(natural.arrow):
        quoted = product.real.format(quoted)
    plain = SqlColumn(described.label, described.name, None, described.nullable, quoted)
    if wanted is None:
        if natural.refusal:
            return dataclasses.replace(plain, refusal=natural.refusal)
        return dataclasses.replace(plain, arrow=natural.arrow)
    select = quoted
    if is_text(wanted) and described.product != "sqlite":
        select = _as_text(quoted, described, product)
    elif wanted_type(described, wanted) is None:
        select = ""
    if not select:
        refusal = f"it cannot be read as {wanted} exactly: cast it in --query"
        return dataclasses.replace(plain, refusal=refusal)
    return dataclasses.replace(plain, arrow=wanted, select=select)


def _as_text(quoted: str, described: Described, product: Product) -> str:
    """Return the expression of a column as text; empty where it has none."""
    natural = type_of(described, arrays="text")
    if pa.types.is_string(natural.arrow) and not natural.refusal:
        return quoted
    if pa.types.is_binary(natural.arrow) or described.name.lower() == "bit":
        return product.hex.format(quoted)
    return f"CAST({quoted} AS {product.text_type})" if product.text_type else quoted
