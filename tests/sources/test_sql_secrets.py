"""Passwords: nowhere but in the memory of the process that got them, or in its environment."""

import base64
import bz2
import logging
import pickle
import zlib

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.options.sources import DatabaseOptions
from beam_tfrecord.sources.sql import database as sql_secrets
from beam_tfrecord.sources.sql.database import split_password, without_password
from beam_tfrecord.sources.sql.postgres import Postgres
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.databases.postgres import PASSWORD
from tests.helpers.reading import rows_in


@pytest.mark.parametrize(
    ("url", "without", "password"),
    [
        ("postgresql://u:p4ss@h:5432/db", "postgresql://u@h:5432/db", "p4ss"),
        ("postgresql://u:p%40ss@h/db", "postgresql://u@h/db", "p@ss"),
        ("postgresql://u:a:b@h/db?x=me@y", "postgresql://u@h/db?x=me@y", "a:b"),
        # Not encoded as it should be: too much is hidden rather than too little.
        ("postgresql://u:pa/s?s@h/db", "postgresql://u@h/db", "pa/s?s"),
        ("postgresql://u@h/db?password=pw&sslmode=x", "postgresql://u@h/db?sslmode=x", "pw"),
        ("sqlite:////data/a:b@c.db", "sqlite:////data/a:b@c.db", None),
        ("jdbc:postgresql://h/db?user=u&password=pw", "jdbc:postgresql://h/db?user=u", "pw"),
        ("jdbc:sqlserver://h;user=u;password=pw;e=1", "jdbc:sqlserver://h;user=u;e=1", "pw"),
        ("jdbc:oracle:thin:u/pw@//h:1521/x", "jdbc:oracle:thin:u@//h:1521/x", "pw"),
        ("jdbc:h2:mem:x;PASSWORD=pw", "jdbc:h2:mem:x", "pw"),
    ],
)
def test_passwords_are_taken_out_of_urls(url, without, password):
    assert split_password(url) == (without, password)


def test_passwords_are_taken_out_of_texts():
    text = "cannot use postgresql://u:pw1@h/db or s%40cret or s@cret"
    assert without_password(text, "s@cret") == "cannot use postgresql://u@h/db or *** or ***"


def test_where_a_password_comes_from(tmp_path, monkeypatch):
    (tmp_path / "pw").write_text("from file\n")
    monkeypatch.setenv("PW", "from environment")
    monkeypatch.setitem(sql_secrets._stored, "postgresql://h/db", "from url")
    url = "postgresql://h/db"
    assert Postgres(url).password() == "from url"
    assert Postgres(url, DatabaseOptions(password_env="PW")).password() == "from environment"
    assert (
        Postgres(url, DatabaseOptions(password_file=str(tmp_path / "pw"))).password() == "from file"
    )
    assert Postgres("postgresql://other/db").password() is None
    with pytest.raises(UsageError, match="environment variable 'NO_PW' is not set"):
        Postgres(url, DatabaseOptions(password_env="NO_PW")).password()
    with pytest.raises(UsageError, match=r"no\.txt' \(No such file or directory\): put it where"):
        Postgres(url, DatabaseOptions(password_file=str(tmp_path / "no.txt"))).password()


def things_sent(p):
    """Yield what every transform of a pipeline carries, as plain pickles."""
    proto = p.to_runner_api()
    assert PASSWORD.encode() not in proto.SerializeToString()
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            if packed := base64.b64decode(payload.do_fn.payload):
                yield bz2.decompress(packed) if packed[:3] == b"BZh" else zlib.decompress(packed)


@pytest.mark.parametrize(
    "read",
    [
        lambda s: bt.ReadFromSql(s.full_url, table="t"),
        lambda s: bt.ReadFromSql(s.url, table="t", password=PASSWORD),
    ],
)
def test_no_password_is_sent_to_workers(postgres, read):
    with beam.Pipeline(runner="FnApiRunner") as p:
        reading = read(postgres)
        rows = p | reading | bt.ToRows() | beam.combiners.ToList()
        rows | beam.Map(print)
        source = reading.source
        sent = list(things_sent(p))
        postgres.run("DROP TABLE IF EXISTS t", "CREATE TABLE t AS SELECT 1 AS x")
    # What is looked for would be seen: the URL without the password is there.
    assert any(postgres.url.encode() in one for one in sent)
    assert not any(PASSWORD.encode() in one for one in sent)
    assert PASSWORD.encode() not in pickle.dumps(source)
    assert PASSWORD not in repr(source)


def test_no_password_is_written(postgres, tmp_path, caplog):
    postgres.run("DROP TABLE IF EXISTS t", "CREATE TABLE t AS SELECT 1 AS x")
    with caplog.at_level(logging.DEBUG):
        options = {"table": "t"}
        bt.write(postgres.full_url, tmp_path / "out", source_options=options)
        planned = bt.plan(postgres.full_url, tmp_path / "new", source_options=options)
        with pytest.raises(BeamTFRecordError) as caught:
            bt.write(postgres.full_url, tmp_path / "x", source_options={"table": "nope"})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) >= 5
    for path in files:
        assert PASSWORD.encode() not in path.read_bytes()
    assert PASSWORD not in caplog.text + repr(planned) + repr(caught.value.__context__)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "break_url",
    [
        lambda url: url.replace("tester:", "nobody:"),
        lambda url: url.replace("/postgres", "/nodb"),
        lambda url: url.replace("127.0.0.1", "nohost.invalid"),
        lambda url: url.replace("127.0.0.1:", "127.0.0.1:x"),
        lambda url: url + "?nope=1",
    ],
)
def test_no_password_is_in_an_error(postgres, break_url):
    with pytest.raises(BeamTFRecordError) as caught:
        Sql(break_url(postgres.full_url), table="t").all_scans()
    error = caught.value
    while error is not None:
        assert PASSWORD not in str(error)
        error = error.__cause__


def test_inputs_of_several_kinds_are_told_without_a_password():
    with pytest.raises(UsageError, match=r"'postgresql://u@h/db' is sql but 'a\.csv' is csv"):
        bt.write(["postgresql://u:pw1@h/db", "a.csv"], "out")


def test_ways_to_log_in(postgres, tmp_path, monkeypatch):
    monkeypatch.setattr(sql_secrets, "_stored", {})
    query = "SELECT 1 AS x"
    with pytest.raises(UsageError, match=r"cannot log in to .*: pass --password-env or --pass"):
        Sql(postgres.url, query=query).schema()
    monkeypatch.setenv("DB_PASSWORD", PASSWORD)
    file = tmp_path / "pgpass"
    file.write_text(f"127.0.0.1:{postgres.port}:*:tester:{PASSWORD}\n")
    file.chmod(0o600)
    assert rows_in(Sql(postgres.url, query=query, password_env="DB_PASSWORD").batches())
    monkeypatch.setenv("PGPASSFILE", str(file))
    assert rows_in(Sql(postgres.url, query=query).batches()) == [{"x": 1}]
    url = postgres.url.replace("tester@", "")
    assert rows_in(Sql(url, query=query, username="tester").batches()) == [{"x": 1}]
