"""`ReadAllFrom…`: rows of the files at paths found in the pipeline."""

import apache_beam as beam
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that, equal_to

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, RejectedRows, UsageError
from tests.helpers.datasets import shard_hashes

WRITE = {"Arrow": feather.write_feather, "Orc": orc.write_table, "Parquet": pq.write_table}


def of_paths(transform, paths):
    p = bt.pipeline()
    return p, p | beam.Create([str(path) for path in paths]) | transform


def write_files(directory, kind):
    """Write three files of ten rows each; return their schema if `kind` does not state it."""
    for number in range(3):
        rows = [{"id": 10 * number + row, "name": f"name {row}"} for row in range(10)]
        path = directory / f"{number}.{kind.lower()}"
        if kind in WRITE:
            WRITE[kind](pa.Table.from_pylist(rows), path)
        elif kind == "Csv":
            path.write_text("id,name\n" + "".join(f"{r['id']},{r['name']}\n" for r in rows))
        else:
            path.write_text("".join(f'{{"id":{r["id"]},"name":"{r["name"]}"}}\n' for r in rows))
    return {} if kind in WRITE else {"schema": bt.schema(directory / f"0.{kind.lower()}")}


@pytest.mark.parametrize("kind", [*WRITE, "Csv", "Json"])
def test_rows_are_those_of_the_reader_and_each_path_is_read_as_often_as_it_is_given(kind, tmp_path):
    schema = write_files(tmp_path, kind)
    files = tmp_path / f"[01].{kind.lower()}"
    expected = [row for b in getattr(bt, f"ReadFrom{kind}")(files).batches() for row in b.rows()]
    again = [row for row in expected if row["id"] < 10]
    p, batches = of_paths(
        getattr(bt, f"ReadAllFrom{kind}")(**schema), [files, tmp_path / f"0.{kind.lower()}"]
    )
    with p:
        assert_that(batches | bt.ToRows(), equal_to(expected + again))


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [False, True])
def test_the_dataset_does_not_depend_on_the_elements(shuffle, tmp_path):
    write_files(tmp_path, "Parquet")
    with bt.pipeline() as p:
        for out, patterns in {"a": ["*"], "b": ["2.*", "[01].*"]}.items():
            (
                p
                | f"Paths {out}" >> beam.Create([f"{tmp_path}/{one}parquet" for one in patterns])
                | f"Read {out}" >> bt.ReadAllFromParquet(batch_rows=3)
                | f"Write {out}"
                >> bt.WriteToTFRecord(f"{tmp_path}/{out}/", shuffle=shuffle, num_shards=2)
            )
    assert shard_hashes(tmp_path / "a") == shard_hashes(tmp_path / "b")


@pytest.mark.slow
def test_rejects_are_counted_and_name_their_line(tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\nq\n")
    read = bt.ReadAllFromCsv(schema=pa.schema([("id", pa.int64())]))
    p, batches = of_paths(read, [tmp_path / "a.csv"])
    batches | bt.WriteToTFRecord(f"{tmp_path}/out/")
    with pytest.raises(RejectedRows, match=r"1 of 2 rows(?s:.*)'q' in a\.csv:3"):
        p.run()


@pytest.mark.parametrize(
    ("paths", "error", "message"),
    [
        (["0.parquet", "none.parquet"], UsageError, "none.parquet': no such file"),
        (["0.parquet", "x.parquet"], DataError, r"different schemas.*\(id: string\)"),
    ],
)
@pytest.mark.slow_after(1)
def test_a_missing_path_and_other_types_are_refused(paths, error, message, tmp_path):
    write_files(tmp_path, "Parquet")
    pq.write_table(pa.table({"id": ["1"]}), tmp_path / "x.parquet")
    p, batches = of_paths(bt.ReadAllFromParquet(), [tmp_path / path for path in paths])
    batches | bt.WriteToTFRecord(f"{tmp_path}/out/")
    with pytest.raises(error, match=message):
        p.run()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bt.ReadAllFromCsv(), r"ReadAllFromCsv\(schema=bt\.schema"),
        (lambda: bt.pipeline() | bt.ReadAllFromOrc(), r"needs paths: p \| beam\.Create"),
    ],
)
def test_wrong_use_is_refused_while_the_pipeline_is_built(make, message):
    with pytest.raises(UsageError, match=message):
        make()
