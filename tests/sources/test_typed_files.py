"""How files of typed columns are cut into units, and what their records are estimated to take."""

import numpy as np
import pyarrow as pa
import pytest

from beam_tfrecord.sources.arrow import Arrow
from beam_tfrecord.sources.avro import Avro
from beam_tfrecord.sources.orc import Orc
from beam_tfrecord.sources.parquet import Parquet
from tests.helpers import formats
from tests.helpers.reading import units_of

ROWS = 50_000
# Values of 8 bytes in parts of 1,000 rows; ORC is taken to become larger when it is decoded.
KINDS = {
    "parquet": (Parquet, formats.parquet_file, {"group_rows": 1000, "use_dictionary": False}),
    "arrow": (Arrow, formats.arrow_file, {"group_rows": 1000}),
    "stream": (Arrow, formats.arrow_stream, {"group_rows": 1000}),
    "orc": (Orc, formats.orc_file, {"group_rows": 1000, "compression": "uncompressed"}),
    "avro": (Avro, formats.avro_file, {"codec": "null", "sync_interval": 8000}),
}
# Rows of a unit, and bytes of a record: other values cut files that were written before elsewhere.
PINNED = {
    "parquet": (10_000, 34),
    "arrow": (10_000, 33),
    "stream": (10_000, 33),
    "orc": (4_000, 49),
    "avro": (8_800, 35),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_cut_into_units_of_even_size(tmp_path, kind, monkeypatch):
    source, form, options = KINDS[kind]
    monkeypatch.setattr(source, "unit_bytes", 100_000)
    values = np.random.default_rng(1).integers(2**62, 2**63 - 1, ROWS)
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    (tmp_path / "a").write_bytes(form(pa.table([values], schema=schema), **options))
    *units, last = units_of(source(tmp_path / "a"))
    rows, row_bytes = PINNED[kind]
    assert {unit.rows for unit in units} == {rows}
    assert last.rows == ROWS - rows * len(units) <= rows
    assert {round(unit.encoded_bytes / unit.rows) for unit in units} == {row_bytes}
