"""What a runner's page shows of each public transform."""

from __future__ import annotations

import inspect
import sqlite3
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms.display import DisplayData

import beam_tfrecord as bt
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.runners.pipelines import LocalRunner
from tests.helpers.lazy import Lazy
from tests.helpers.made_tables import hinted_catalog

deltalake = Lazy("deltalake")

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
SECRET = "hush-hush"


def double(row: dict[str, Any]) -> dict[str, Any]:
    return row


def lake_tables(directory):
    """Make a table of Delta Lake and one of Iceberg; return their directories."""
    rows = pa.table({"id": [1]})
    deltalake.write_deltalake(str(directory / "delta"), rows)
    properties = {"uri": f"sqlite:///{directory}/c.db", "warehouse": f"file://{directory}"}
    catalog = hinted_catalog("mine", **properties)
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", schema=rows.schema).append(rows)
    catalog.engine.dispose()
    return {"Delta": str(directory / "delta"), "Iceberg": str(directory / "ns" / "t")}


def transforms(tmp_path):
    """Return a transform of every public class, and what is to be shown of it."""
    database = tmp_path / "a.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE t (id INTEGER)")
    url = f"postgresql://someone:{SECRET}@host:5432/base?sslpassword={SECRET}&application_name=x"
    by_jdbc = bt.ReadFromJdbc(
        "t",
        None,
        f"jdbc:postgresql://host/base?password={SECRET}",
        "someone",
        SECRET,
        connection_properties=f"sslpassword={SECRET}",
    )
    signed = f"https://host/a.csv?X-Signature={SECRET}"
    return {
        "ReadFromArrow": (
            bt.ReadFromArrow([{"id": 1}], columns=["id"]),
            {"kind": "memory", "columns": "id"},
        ),
        "ReadFromCsv": (
            bt.ReadFromCsv([signed, "b.csv"], delimiter=";"),
            {"kind": "csv", "paths": "https://host/a.csv, b.csv", "delimiter": ";"},
        ),
        "ReadFromImages": (
            bt.ReadFromImages("pictures", resize="64x64"),
            {"kind": "images", "paths": "pictures"},
        ),
        "ReadFromNumpy": (
            bt.ReadFromNumpy({"data": np.zeros(3), "label": np.zeros(3)}),
            {"kind": "numpy", "arrays": "data, label"},
        ),
        "ReadFromParquet": (
            bt.ReadFromParquet("in", columns=["a", "b"]),
            {"kind": "parquet", "paths": "in", "columns": "a, b"},
        ),
        **{
            f"ReadFrom{name}": (
                getattr(bt, f"ReadFrom{name}")("in", columns=["a", "b"]),
                {"kind": name.lower(), "paths": "in", "columns": "a, b"},
            )
            for name in ("Avro", "Coco", "Excel", "Json", "Orc", "WebDataset")
        },
        **{
            f"ReadAllFrom{name}": (
                getattr(bt, f"ReadAllFrom{name}")(columns=["a", "b"]),
                {"kind": name.lower(), "columns": "a, b"},
            )
            for name in ("Arrow", "Avro", "Orc", "Parquet", "TFRecord", "WebDataset")
        },
        **{
            f"ReadAllFrom{name}": (
                getattr(bt, f"ReadAllFrom{name}")(schema=SCHEMA),
                {"kind": name.lower(), "types": "id=int64, name=string", "columns": "id, name"},
            )
            for name in ("Csv", "Json")
        },
        **{
            f"ReadFrom{name}": (
                getattr(bt, f"ReadFrom{name}")(path, columns=["id"], properties={"token": SECRET}),
                {"kind": name.lower(), "paths": path, "columns": "id"},
            )
            for name, path in lake_tables(tmp_path).items()
        },
        "ReadFromTFRecord": (
            bt.ReadFromTFRecord("in", columns=["a", "b"]),
            {"kind": "tfrecord", "paths": "in", "columns": "a, b"},
        ),
        "ReadFromSql": (
            bt.ReadFromSql(url, table="t", where=f"token = '{SECRET}'"),
            {"kind": "sql", "paths": "postgresql://someone@host:5432/base", "table": "t"},
        ),
        "ReadFromJdbc": (
            by_jdbc,
            {"kind": "sql", "paths": "jdbc:postgresql://host/base", "table": "t"},
        ),
        "BatchRows": (
            bt.BatchRows(SCHEMA),
            {"schema": "id: int64, name: string", "batch_rows": 16384},
        ),
        "MapRows": (bt.MapRows(double), {"function": "double"}),
        "MapBatches": (
            bt.MapBatches(double, keeps_rows=False),  # type: ignore[arg-type]
            {"function": "double", "keeps_rows": False},
        ),
        "AssignSplits": (
            bt.AssignSplits({"a": 0.25, "b": 0.75}, seed=3),
            {"splits": "a=0.25, b=0.75", "seed": 3},
        ),
        "Preprocess": (
            bt.Preprocess([{"op": "zscore", "columns": ["id"]}]),
            {"fit": "train", "raw_too": False},
        ),
        "EncodeExamples": (
            bt.EncodeExamples(bt.Schema.from_arrow(SCHEMA)),
            {"schema": "id: int64, name: string"},
        ),
        "ToExample": (bt.ToExample(SCHEMA), {"schema": "id: int64, name: string"}),
        "ToRows": (bt.ToRows(), {}),
        "WriteToTFRecord": (
            bt.WriteToTFRecord(str(tmp_path / "part"), num_shards=2, key="id"),
            {
                "output": str(tmp_path / "part"),
                "shards": 2,
                "key": "id",
                "shuffle": True,
                "seed": 0,
                "overwrite": False,
            },
        ),
        "ExtractToParquet": (
            bt.ExtractToParquet(tmp_path / "stage"),
            {"output": str(tmp_path / "stage"), "overwrite": False},
        ),
    }


@pytest.mark.slow
def test_every_public_transform_shows_its_arguments_and_no_secret(tmp_path):
    made = transforms(tmp_path)
    public = {name: getattr(bt, name) for name in bt.__all__}
    kinds = {
        name
        for name, value in public.items()
        if inspect.isclass(value) and issubclass(value, beam.PTransform | beam.DoFn)
    }
    assert set(made) == kinds
    for name, (transform, expected) in made.items():
        items = {item.key: item for item in DisplayData.create_from(transform).items}
        found = {key: item.get_dict()["value"] for key, item in items.items()}
        assert SECRET not in str(found), name
        told = {key: found.get(key) for key in expected}
        assert told == expected, name


def test_two_sinks_of_a_pipeline_have_outputs_of_their_own(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    (tmp_path / "out").mkdir()
    p = bt.pipeline("FnApiRunner")
    rows = p | beam.Create([{"id": 1}]).with_output_types(dict)
    rows | "1" >> bt.WriteToTFRecord(f"{tmp_path / 'out'}/")
    rows | "2" >> bt.WriteToTFRecord(str(tmp_path / "out" / "part"))
    rows | "3" >> bt.WriteToTFRecord(str(tmp_path / "out" / "other"))
    for number, sink in enumerate(
        (
            bt.WriteToTFRecord(f"{tmp_path / 'out'}/", overwrite=True),
            bt.WriteToTFRecord(f"{tmp_path / 'link'}/"),
            bt.WriteToTFRecord(str(tmp_path / "out" / "part")),
            bt.ExtractToParquet(tmp_path / "out"),
        )
    ):
        with pytest.raises(TargetExists, match="two sinks of one pipeline write to"):
            rows | f"Again{number}" >> sink
    another = bt.pipeline("FnApiRunner") | beam.Create([{"id": 1}]).with_output_types(dict)
    another | bt.WriteToTFRecord(f"{tmp_path / 'out'}/")


class DataflowRunner(PipelineRunner):
    """The name is all that counts: the real one asks the cloud what it may do."""


def test_the_exchange_follows_the_runner(tmp_path):
    def labels(runner, **options):
        p = bt.pipeline("FnApiRunner")
        p.runner = runner
        rows = p | beam.Create([{"id": 1}]).with_output_types(dict)
        rows | "W" >> bt.WriteToTFRecord(f"{tmp_path}/", **options)
        return {label.split("/")[1] for label in p.applied_labels if label.startswith("W/")}

    assert "SortRange0" in labels(DataflowRunner())
    assert "Spill0" in labels(DataflowRunner(), exchange="files")
    assert "Spill0" in labels(LocalRunner())
    assert "SortRange0" in labels(LocalRunner(), exchange="runner")
