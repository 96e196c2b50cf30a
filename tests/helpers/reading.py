"""What a source gives, in this process and without a pipeline."""

import pyarrow as pa

from beam_tfrecord.sources.choose import make_source


def units_of(source):
    """Return the units of the whole input."""
    return source.all_units(source.all_scans())


def batches_of(source, schema=None, **options):
    """Read everything, rejects and all."""
    scans = source.all_scans()
    schema = source.schema(scans) if schema is None else schema
    units = source.all_units(scans)
    return [batch for unit in units for batch in source.read_unchanged(unit, schema, **options)]


def rows_in(batches):
    return [row for batch in batches for row in batch.rows()]


def rows_by_place(source, *, batch_rows=23):
    """Return all rows by their unit and number."""
    return {
        (batch.origin.unit, number): row
        for batch in source.batches(batch_rows=batch_rows)
        for number, row in zip(
            batch.origin.row_numbers(batch.num_rows).tolist(), batch.rows(), strict=True
        )
    }


def rows_of(source, *, batch_rows=7):
    """Return all rows; a reject is an error."""
    return rows_in(source.batches(batch_rows=batch_rows))


def rows_at(path, **options):
    """Return all rows of a path, read with options of its source."""
    return rows_of(make_source(path, options=options), batch_rows=2)


def good_rows(source, **options):
    """Return the rows that are no rejects."""
    return rows_in(batches_of(source, **options))


def rejects_of(source, schema=None):
    return [reject for batch in batches_of(source, schema) for reject in batch.rejects]


def messages_of(source, schema=None):
    """Return the messages of the rejects."""
    return [reject.message for reject in rejects_of(source, schema)]


def read_all(source, **options):
    """Return the whole input as a table; a reject is an error."""
    batches = [batch.data for batch in source.batches(**options)]
    return pa.Table.from_batches(batches, source.schema())


def rows_and_rejects(source, schema=None, **options):
    """Return the good rows as a table, and the rejects."""
    schema = source.schema() if schema is None else schema
    batches = batches_of(source, schema, **options)
    table = pa.Table.from_batches([batch.data for batch in batches], schema)
    return table, [reject for batch in batches for reject in batch.rejects]


def column(source, name="a", schema=None):
    """Return type and values of a column of an input without rejects."""
    table, rejects = rows_and_rejects(source, schema)
    assert not rejects
    return str(table.schema.field(name).type), table[name].to_pylist()
