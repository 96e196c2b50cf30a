"""`dedup` leaves out exact copies within a split, and every count is that of the rows that stay."""

import json
import tempfile
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import UsageError
from beam_tfrecord.exchange import merge
from tests.helpers.effort import WHOLE
from tests.helpers.records import read_records

SCHEMA = pa.schema(
    {
        "split": pa.string(),
        "x": pa.float64(),
        "n": pa.int32(),
        "items": pa.list_(pa.string()),
        "of": pa.struct({"a": pa.int64()}),
    }
)
ROWS = st.fixed_dictionaries(
    {
        "split": st.sampled_from(["train", "test"]),
        "x": st.sampled_from([0.5, float("nan"), None]),
        "n": st.none() | st.integers(0, 2),
        "items": st.none() | st.lists(st.sampled_from(["a", "b", "ab"]), max_size=2),
        "of": st.none() | st.fixed_dictionaries({"a": st.integers(0, 1)}),
    }
)
MANY = st.lists(ROWS, min_size=1, max_size=9).flatmap(
    lambda few: st.lists(st.sampled_from(few), min_size=1, max_size=60)
)


@settings(max_examples=20 if WHOLE else 2, deadline=None)
@given(rows=MANY, key=st.sampled_from([(), ("n",)]), section_bytes=st.sampled_from([1, 2**20]))
def test_copies_leave_no_trace(rows, key, section_bytes):
    single = list({repr(sorted(row.items())): row for row in rows}.values())
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "SECTION_BYTES", section_bytes)
        outputs = {}
        for name, table in (("many", rows), ("single", single)):
            file = Path(scratch, f"{name}.parquet")
            pq.write_table(pa.Table.from_pylist(table, SCHEMA), file, row_group_size=7)
            output = Path(scratch, name)
            bt.write(file, output, split_column="split", key=key, dedup=name == "many", shards=3)
            splits = {row["split"] for row in single}
            assert bt.verify(output).ok
            outputs[name] = (
                (output / "schema.json").read_text(),
                {name: sorted(map(repr, bt.load(output, split=name).rows())) for name in splits},
            )
        assert outputs["many"] == outputs["single"]
        remarks = json.loads(Path(scratch, "many", "job.json").read_text())["remarks"]
        counts = [line for line in remarks if line.startswith("--dedup left out ")]
        assert [int(line.split()[3]) for line in counts] == (
            [len(rows) - len(single)] if len(rows) > len(single) else []
        )


@pytest.mark.parametrize("exchange", ["files", "runner"])
@pytest.mark.parametrize("coder", [None, beam.coders.BytesCoder()], ids=["examples", "bytes"])
def test_a_pipeline(tmp_path, exchange, coder):
    # Examples of the int64 feature x.
    kept = [bytes.fromhex("0a0c0a0a0a017812051a030a01") + bytes([number]) for number in range(4)]
    with bt.pipeline("direct") as pipeline:
        _ = (
            pipeline
            | beam.Create([kept[number % 4] for number in range(50)])
            | bt.WriteToTFRecord(f"{tmp_path}/out/", coder=coder, dedup=True, exchange=exchange)
        )
    records = [record for path in tmp_path.glob("out/*.tfrecord") for record in read_records(path)]
    assert sorted(records) == sorted(kept)
    assert bt.verify(tmp_path / "out").ok


def test_the_order_of_the_input_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"--dedup .* --no-shuffle"):
        bt.write({"a": [1, 1]}, tmp_path / "out", dedup=True, shuffle=False)
