"""Tables of a lake on S3; emulators of other stores lack what `deltalake` asks of them."""

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord import storage
from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.choose import detect_kind
from tests.helpers.lazy import Lazy
from tests.helpers.made_tables import hinted_catalog

deltalake = Lazy("deltalake")

pytestmark = pytest.mark.slow

TABLE = pa.table({"id": list(range(9)), "name": [f"n{row}" for row in range(9)]})
ROWS = sorted(TABLE.to_pylist(), key=lambda row: row["id"])


def rows_by_id(dataset):
    return sorted(bt.load(dataset).rows(), key=lambda row: row["id"])


def test_a_delta_table(amazon_store, tmp_path, monkeypatch):
    deltalake.write_deltalake(tmp_path / "t", TABLE)
    url = f"{amazon_store.url}/t"
    for path in (tmp_path / "t").rglob("*"):
        if path.is_file():
            storage.put(f"{url}/{path.relative_to(tmp_path / 't')}", path.read_bytes())
    assert detect_kind(url) == "delta"
    # The emulator has no TLS.
    with pytest.raises(UsageError, match=r"Generic S3 error \(.*URL scheme is not allowed\)$"):
        bt.schema(url)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    written = bt.write(url, tmp_path / "out")
    assert rows_by_id(tmp_path / "out") == ROWS
    assert bt.write(url, tmp_path / "out") == written


def test_an_iceberg_table(amazon_store, tmp_path):
    of = amazon_store.environment
    storage_of_table = {
        "s3.endpoint": of["AWS_ENDPOINT_URL"],
        "s3.access-key-id": of["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": of["AWS_SECRET_ACCESS_KEY"],
        "s3.region": of["AWS_DEFAULT_REGION"],
    }
    where = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{amazon_store.url}/w"}
    made = hinted_catalog("local", **where, **storage_of_table)
    made.create_namespace("db")
    table = made.create_table("db.t", schema=TABLE.schema)
    table.append(TABLE)
    made.close()
    assert detect_kind(table.location()) == "iceberg"
    options = {"properties": storage_of_table}
    written = bt.write(table.location(), tmp_path / "out", source_options=options)
    assert rows_by_id(tmp_path / "out") == ROWS
    assert bt.write(table.location(), tmp_path / "out", source_options=options) == written
