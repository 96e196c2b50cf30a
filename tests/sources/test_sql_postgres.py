"""PostgreSQL: a real server, its types value by value, its snapshots, and its accidents."""

import datetime
import random
import time
from decimal import Decimal

import pyarrow as pa
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import BeamTFRecordError, DataError, UsageError
from beam_tfrecord.sources.sql import source as sql_read
from beam_tfrecord.sources.sql.database import store_password
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.databases.postgres import PASSWORD
from tests.helpers.databases.proxy import Proxy
from tests.helpers.databases.server import free_port
from tests.helpers.reading import rows_in
from tests.sources.made_sql import conditions, shards_of

UTC = datetime.UTC
US = pa.timestamp("us")
DAY = datetime.date
MOMENT = datetime.datetime

LAST = "294247-01-10 04:00:54.775807"
LATE = ["294247-01-10 04:00:54.775808", "294276-12-31 23:59:59.999999"]

# Type, Arrow type, literals in SQL, and what comes out; a null is added to each.
EXACT = [
    ("integer", pa.int32(), ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
    ("bigint", pa.int64(), ["-9223372036854775808"], [-(2**63)]),
    ("real", pa.float32(), ["'Infinity'", "1e-45", "-0.5"], [float("inf"), 2.0**-149, -0.5]),
    ("float8", pa.float64(), ["1e308", "5e-324", "0.1"], [1e308, 5e-324, 0.1]),
    ("boolean", pa.bool_(), ["true", "false"], [True, False]),
    (
        "numeric(38,10)",
        pa.decimal128(38, 10),
        ["-9999999999999999999999999999.9999999999", "0.0000000001"],
        [Decimal("-9999999999999999999999999999.9999999999"), Decimal("0.0000000001")],
    ),
    ("numeric(4,4)", pa.decimal128(4, 4), ["0.1234"], [Decimal("0.1234")]),
    ("numeric(5,-2)", pa.string(), ["12345"], ["12300"]),
    ("numeric(50,1)", pa.string(), ["1e48"], ["1" + "0" * 48 + ".0"]),
    ("numeric", pa.string(), ["'NaN'", "1.10", "'-Infinity'"], ["NaN", "1.10", "-Infinity"]),
    ("text", pa.string(), ["''", "'naïve 🦊'", "E'a\\nb'"], ["", "naïve 🦊", "a\nb"]),
    ("varchar(3)", pa.string(), ["'ab '"], ["ab "]),
    ("char(4)", pa.string(), ["'ab'"], ["ab  "]),
    ('"char"', pa.string(), ["'c'", "''"], ["c", ""]),
    ("xid", pa.int64(), ["'4294967295'"], [2**32 - 1]),
    ("cid", pa.int64(), ["'4294967295'"], [2**32 - 1]),
    ("bytea", pa.binary(), ["''", "'\\x00ff'"], [b"", b"\0\xff"]),
    (
        "date",
        pa.date32(),
        ["'0001-01-01'", "'1582-10-10'", "'9999-12-31'"],
        [DAY(1, 1, 1), DAY(1582, 10, 10), DAY(9999, 12, 31)],
    ),
    (
        "time",
        pa.time64("us"),
        ["'00:00'", "'23:59:59.999999'"],
        [datetime.time(0), datetime.time(23, 59, 59, 999999)],
    ),
    ("timetz", pa.string(), ["'12:00:00.5+05:30'"], ["12:00:00.5+05:30"]),
    (
        "timestamp",
        US,
        ["'0001-01-01'", "'2024-03-10 02:30:00.123456'", "'9999-12-31 23:59:59.999999'"],
        [
            MOMENT(1, 1, 1),
            MOMENT(2024, 3, 10, 2, 30, 0, 123456),
            MOMENT(9999, 12, 31, 23, 59, 59, 999999),
        ],
    ),
    (
        "timestamptz",
        pa.timestamp("us", "UTC"),
        ["'2024-03-10 02:30:00.000001+05'"],
        [MOMENT(2024, 3, 9, 21, 30, 0, 1, UTC)],
    ),
    ("interval", pa.string(), ["'1 year 2 days 03:04:05.6'"], ["P1Y2DT3H4M5.6S"]),
    (
        "uuid",
        pa.string(),
        ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"],
        ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    ),
    ("jsonb", pa.string(), ['\'{"b":1,"a":null}\''], ['{"a": null, "b": 1}']),
    ("money", pa.string(), ["'1234.50'"], ["$1,234.50"]),
    ("bit(3)", pa.string(), ["B'101'"], ["101"]),
    ("mood", pa.string(), ["'sad'", "'ok'"], ["sad", "ok"]),
    ("counted", pa.int32(), ["7"], [7]),
]


@pytest.fixture(scope="module")
def server(postgres):
    """The server with the tables that several tests read, and its password in this process."""
    postgres.run(
        "DROP TYPE IF EXISTS mood CASCADE",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN counted AS int CHECK (VALUE > 0)",
        "CREATE TABLE trips AS SELECT g AS id, g / 8.0::float8 AS fare, 'zone ' || g % 7 AS zone "
        "FROM generate_series(1, 20000) AS g",
        "ALTER TABLE trips ADD PRIMARY KEY (id)",
    )
    store_password(postgres.url, PASSWORD)
    return postgres


def column(server, declared, literals, **options):
    server.run(
        "DROP TABLE IF EXISTS one",
        f"CREATE TABLE one (n int PRIMARY KEY, c {declared})",
        *(f"INSERT INTO one VALUES ({n}, {text})" for n, text in enumerate([*literals, "NULL"])),
    )
    return Sql(server.url, table="one", columns=["c"], ordered=True, **options)


@pytest.mark.parametrize(("declared", "arrow", "literals", "expected"), EXACT)
def test_values_come_back_exactly(server, declared, arrow, literals, expected):
    source = column(server, declared, literals)
    assert source.schema() == pa.schema([("c", arrow)])
    assert [row["c"] for row in rows_in(source.batches())] == [*expected, None]


@pytest.mark.parametrize(
    ("declared", "literal", "shown"),
    [
        ("date", "'infinity'", "infinity"),
        ("timestamp", "'infinity'", "infinity"),
        *((of, f"'{late}+00'", late) for of in ("timestamp", "timestamptz") for late in LATE),
        ("time", "'24:00'", "24:00:00"),
        ("numeric(5,2)", "'NaN'", "NaN"),
    ],
)
def test_what_arrow_cannot_hold_is_a_reject_or_text(server, declared, literal, shown):
    source = column(server, declared, [literal])
    (scan,) = source.all_scans()
    (batch,) = source.read(source.units([scan])[0], source.merge([scan]))
    (reject,) = batch.rejects
    assert reject.value.lower() == ("after " + LAST if shown in LATE else shown.lower())
    assert reject.message.endswith("pass --types c=text")
    assert batch.data.to_pylist() == [{"c": None}]
    as_text = Sql(server.url, table="one", columns=["c"], types={"c": "text"}, ordered=True)
    text, missing = (row["c"] for row in rows_in(as_text.batches()))
    assert (text.removesuffix("+00"), missing) == (shown, None)


def test_arrays_are_refused_or_text(server):
    refused = column(server, "int[]", ["'{1,NULL,3}'"])
    message = r"column 'c' of public\.one is int4\[\]: an array is read with --arrays list or"
    with pytest.raises(DataError, match=message):
        refused.schema()
    text = Sql(server.url, table="one", columns=["c"], arrays="text", ordered=True)
    assert [row["c"] for row in rows_in(text.batches())] == ["{1,NULL,3}", None]


def test_types_that_the_user_wants(server):
    wide = column(server, "numeric", ["1.5", "1.555"], types={"c": "decimal128(4, 2)"})
    (scan,) = wide.all_scans()
    (batch,) = wide.read(wide.units([scan])[0], wide.merge([scan]))
    assert batch.data.to_pylist() == [{"c": Decimal("1.50")}, {"c": None}]
    assert [reject.value for reject in batch.rejects] == ["1.555"]
    with pytest.raises(DataError, match="interval: it cannot be read as timestamp"):
        column(server, "interval", ["'1 day'"], types={"c": "timestamp"}).schema()


def test_a_number_much_finer_than_a_decimal_is_a_reject(server):
    # Arrow makes 0 of a number that is 39 digits finer than the type.
    source = column(server, "numeric", ["1e-58", "0"], types={"c": "decimal128(38, 19)"})
    (scan,) = source.all_scans()
    (batch,) = source.read(source.units([scan])[0], source.merge([scan]))
    assert batch.data.to_pylist() == [{"c": Decimal(0)}, {"c": None}]
    assert [reject.row for reject in batch.rejects] == [0]


# --- what is read, and in which parts


def test_a_table_is_cut_by_its_key(server):
    source = Sql(server.url, table="trips", partitions=4, partition_column="id")
    assert [count for _, count in conditions(source)] == [5000] * 4
    assert source.schema().field("id") == pa.field("id", pa.int32(), nullable=False)
    origins = [batch.origin for batch in source.batches()]
    numbers = [n for o in origins if o is not None for n in o.row_numbers(0).tolist()]
    assert sorted(numbers) == list(range(1, 20001))
    assert {o.unit for o in origins if o is not None} == {"public.trips"}


def test_a_table_without_a_key_is_cut_by_pages(server):
    server.run(
        "DROP TABLE IF EXISTS heap",
        "CREATE TABLE heap AS SELECT g % 5 AS x, repeat('x', 100) AS y "
        "FROM generate_series(1, 20000) AS g",
    )
    source = Sql(server.url, table="heap", partitions=3)
    found = conditions(source)
    assert [text.split(" ")[0] for text, _ in found] == ["ctid"] * 3
    assert all(6000 < (count or 0) < 7500 for _, count in found)
    assert len(rows_in(source.batches())) == 20_000


def test_names_in_every_writing(server):
    server.run(
        'CREATE SCHEMA "My Schema"',
        'CREATE TABLE "My Schema"."Trips" ("Select" int PRIMARY KEY)',
        'INSERT INTO "My Schema"."Trips" VALUES (1)',
    )
    for table in ('"My Schema"."Trips"', "My Schema.Trips"):
        source = Sql(server.url, table=table, where='"Select" > 0')
        assert rows_in(source.batches()) == [{"Select": 1}]
    for table in ("trips", "TRIPS", "public.trips"):
        assert Sql(server.url, table=table).all_scans()[0].detail.name == "public.trips"


# --- one moment, whatever happens


def test_a_lost_snapshot_fails_the_job(server):
    source = Sql(server.url, table="trips", partitions=4)
    (scan,) = source.all_scans()
    schema, units = source.merge([scan]), source.units([scan])
    assert rows_in(source.read(units[0], schema))
    source.release()
    with pytest.raises(DataError, match="the connection that held it is closed"):
        list(source.read(units[1], schema))


def cut_at_random(seed):
    """Return when to cut: never the connection that plans, and others anywhere, three in four."""
    chosen = random.Random(seed)
    return lambda number: (
        None if number == 0 or chosen.random() < 0.25 else chosen.randrange(100, 400_000)
    )


@pytest.fixture
def proxied(server):
    def make(seed):
        proxy = Proxy(server.port, cut_at_random(seed))
        store_password(url_by(proxy, server), PASSWORD)
        return proxy

    return make


def url_by(proxy, server):
    return server.url.replace(str(server.port), str(proxy.port)) + "?sslmode=disable"


def test_connections_cut_at_random_moments(server, proxied, monkeypatch):
    monkeypatch.setattr(sql_read, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(sql_read, "ATTEMPTS", 40)
    cuts = 0
    for seed in range(5):
        with proxied(seed) as proxy:
            source = Sql(url_by(proxy, server), table="trips", partitions=4)
            rows = rows_in(source.batches(batch_rows=512))
            cuts += proxy.cuts
        assert sorted(row["id"] for row in rows) == list(range(1, 20_001))
    assert cuts >= 20


# --- complete jobs, and errors


def test_a_job_is_the_same_however_the_table_is_cut(server, tmp_path):
    for partitions in (1, 5):
        bt.write(
            server.url,
            tmp_path / str(partitions),
            shards=3,
            source_options={"table": "trips", "partitions": partitions},
        )
    assert shards_of(tmp_path / "1") == shards_of(tmp_path / "5")
    manifest = bt.Manifest.load(tmp_path / "1")
    assert manifest.source == {
        "kind": "sql",
        "files": [{"path": "postgresql://127.0.0.1/postgres", "bytes": 0}],
        "table": "trips",
        "snapshot": "one snapshot",
    }
    assert sql_read._holders == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("tester@", "tester:wrong@"), r"cannot log in to .* \(password authentication failed"),
        (("tester@", "nobody:x@"), r"cannot log in to .* \(password authentication failed"),
        (("/postgres", "/nodb"), 'cannot read .*/nodb: database "nodb" does not exist'),
        (("127.0.0.1", "nohost.invalid"), "could not translate host name"),
        (("127.0.0.1:", f"127.0.0.1:{free_port()}/x?"), "cannot reach .*: .*Connection refused"),
    ],
)
def test_a_database_that_cannot_be_had(server, change, message):
    url = server.url.replace(*change)
    if "wrong" not in url and "nobody" not in url:
        store_password(url, PASSWORD)
    started = time.monotonic()
    try:
        with pytest.raises(UsageError, match=message) as caught:
            Sql(url, table="trips").all_scans()
    finally:
        store_password(server.url, PASSWORD)
    assert time.monotonic() - started < 10
    assert "\n" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "trip"}, r"table 'trip' is not in .*: did you mean 'trips'\?"),
        ({"table": "trips", "where": "nope = 1"}, 'column "nope" does not exist'),
        ({"table": "trips", "where": "snapshot = 1"}, "does not exist.* correct --where"),
        ({"table": "trips", "where": "password = 1"}, "does not exist.* correct --where"),
        ({"query": "DELETE FROM trips RETURNING id"}, "which has to be one SELECT"),
        (
            {"query": "SELECT pg_sleep(60)::text AS a", "statement_timeout_s": 0.3},
            "ran into the time limit .*: raise --statement-timeout",
        ),
        ({"query": "SELECT 1 AS a, 2 AS a"}, "the query has two columns named 'a'"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(server, options, message):
    with pytest.raises(BeamTFRecordError, match=message) as caught:
        Sql(server.url, **options).all_scans()
    assert "\n" not in str(caught.value)
