"""Rows of a database as batches: under a schema, with their numbers, and misfits as rejects."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from beam_tfrecord.batch import Batch, Origin, Reject
from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.sources.base import Unit
from beam_tfrecord.sources.parquet.types import can_cast, cast_exactly
from beam_tfrecord.sources.sql.engine import Misfit, SqlColumn, SqlRows
from beam_tfrecord.sources.sql.plan import SqlPlan

_SHOWN_CHARACTERS = 200


def columns_for(schema: pa.Schema, plan: SqlPlan) -> list[SqlColumn]:
    """Return the columns to select: those of `schema`, then the one that names the rows."""
    by_name = {column.name: column for column in plan.columns}
    for field in schema:
        column = by_name.get(field.name)
        if column is None:
            raise DataError(f"column {field.name!r} of the schema is not in {plan.name}")
        if column.arrow is None or not can_cast(column.arrow, field.type):
            raise SchemaConflict(
                f"column {field.name!r} of {plan.name} is {column.declared} but {field.type} in "
                f"the schema: pass --types {field.name}={field.type}"
            )
    behind = [] if plan.behind is None else [plan.behind]
    return [by_name[name] for name in schema.names] + behind


def origin_of(unit: Unit, plan: SqlPlan, rows: SqlRows, first_row: int) -> Origin | None:
    """Return the numbers of rows: their key, or their order; None where they have neither."""
    if plan.number is not None:
        keys = rows.data.column(rows.data.num_columns - 1).cast(pa.int64())
        numbers = keys.fill_null(-1).to_numpy(zero_copy_only=False)
        # Not the partition's name: a row keeps its place however the table is cut.
        return Origin(plan.name, unit.index, numbers)
    return Origin(unit.name, unit.index, first_row) if plan.is_ordered else None


def batch_of(rows: SqlRows, origin: Origin | None, schema: pa.Schema, plan: SqlPlan) -> Batch:
    """Bring rows to a schema; what does not fit, and every misfit, is a reject."""
    rejects: dict[int, Reject] = {}
    for misfit in rows.misfits:
        rejects.setdefault(misfit.row, _reject(misfit, origin, schema, plan, rows))
    arrays = []
    for index, field in enumerate(schema):
        values = rows.data.column(index)
        array, misfits = cast_exactly(values, field.type)
        arrays.append(array)
        for row in misfits.tolist():
            text = str(values[row].as_py())[:_SHOWN_CHARACTERS]
            misfit = Misfit(row, field.name, f"is {text[:40]}, which is not {field.type}", text)
            rejects.setdefault(row, _reject(misfit, origin, schema, plan, rows))
    data = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if not rejects:
        return Batch(data, origin)
    kept = np.setdiff1d(np.arange(data.num_rows, dtype=np.int64), list(rejects))
    whole = Batch(data, origin).take(kept)
    return whole.replace(rejects=tuple(rejects[row] for row in sorted(rejects)))


def _reject(
    misfit: Misfit, origin: Origin | None, schema: pa.Schema, plan: SqlPlan, rows: SqlRows
) -> Reject:
    number, where = -1, ""
    if plan.behind is not None:
        found = rows.data.column(rows.data.num_columns - 1)[misfit.row].as_py()
        number = -1 if found is None else int(found)
        where = "" if found is None else f" where {plan.behind.name} is {found}"
    elif origin is not None:
        number = int(origin.row_numbers(rows.data.num_rows)[misfit.row])
        where = f" in row {number}"
    else:
        keys = [name for name in plan.key if name in schema.names and name != misfit.column]
        values = [rows.data.column(schema.get_field_index(name))[misfit.row] for name in keys]
        shown = [f"{name} is {_shown(of)}" for name, of in zip(keys, values, strict=True)]
        where = f" where {' and '.join(shown)}" if shown else ""
    return Reject(
        unit=plan.name if origin is None else origin.unit,
        row=number,
        column=misfit.column,
        code="bad-value",
        message=f"column {misfit.column!r} of {plan.name}{where} {misfit.message}",
        value=misfit.value,
    )


def _shown(value: pa.Scalar) -> str:
    # Python has no dates before year 1 or after 9999.
    try:
        found = value.as_py()
    except (OverflowError, ValueError):
        return str(value.cast(pa.string()))
    return repr(found[:40]) if isinstance(found, str | bytes) else str(found)
