"""A unit that workers share: each row is in one share, whatever the kind of the input."""

import dataclasses
import itertools

import pyarrow as pa
import pytest

from beam_tfrecord.selection.select import make_selection
from beam_tfrecord.sources.base import with_selection
from beam_tfrecord.sources.choose import make_source
from beam_tfrecord.sources.read_tasks import pack_units, tasks_for_workers
from beam_tfrecord.transforms.read_batches import read_task
from tests.helpers.formats import write_file

ROWS = 50_000
TABLE = pa.table({"id": pa.array(range(ROWS)), "text": [f"t{row % 97}" for row in range(ROWS)]})
BATCH_ROWS = 4_096


def numbers_in(source, task, schema):
    """Return unit and number of each row of a task, with the row's value."""
    for batch in read_task(source, task, schema, BATCH_ROWS, ("read",)):
        origin, ids = batch.origin, batch.data.column("id").to_pylist()
        for number, value in zip(origin.row_numbers(batch.num_rows).tolist(), ids, strict=True):
            yield origin.unit, origin.index, number, value


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.jsonl", "a.arrow", "a.orc", "a.csv.gz"])
@pytest.mark.parametrize("condition", [None, "id < 30000"])
def test_the_shares_of_a_unit_have_each_row_once(name, condition, tmp_path):
    path = str(write_file(tmp_path / name, TABLE))
    source = with_selection(make_source([path]), make_selection(filter=condition))
    units = source.all_units(source.all_scans())
    assert len(units) == 1
    schema = source.schema()
    (whole,) = pack_units(units)
    expected = list(numbers_in(source, whole, schema))
    assert len(expected) == (ROWS if condition is None else 30_000)
    shares = [dataclasses.replace(whole, share=(share, 3)) for share in range(3)]
    found = [list(numbers_in(source, share, schema)) for share in shares]
    assert min(map(len, found)) > 0
    assert sorted(itertools.chain.from_iterable(found)) == sorted(expected)


def test_each_worker_has_tasks_of_similar_sizes(tmp_path):
    for name, rows in (("a", 50_000), ("b", 20_000), ("c", 40), ("d", 30)):
        write_file(tmp_path / f"{name}.parquet", TABLE.slice(0, rows))
    source = make_source([str(tmp_path)])
    units = source.all_units(source.all_scans())
    tasks = tasks_for_workers(source, units, 2, 2**30)
    total = sum(unit.encoded_bytes for unit in units)
    assert len(tasks) >= 4
    assert max(task.encoded_bytes for task in tasks) <= 1.5 * total / 4
    read = [(unit.name, task.share) for task in tasks for unit in task.units]
    assert len(read) == len(set(read))
    for unit in units:
        shares = [share for name, share in read if name == unit.name]
        assert sorted(shares) == [(number, len(shares)) for number in range(len(shares))]
