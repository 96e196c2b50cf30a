"""What users pass undoes neither the exactness of values nor the promise to write nothing."""

import contextlib

import pytest

from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.sources.sql.database import trimmed
from beam_tfrecord.sources.sql.source import Sql
from tests.helpers.databases import partitions
from tests.helpers.databases.partitions import KeyedDatabase
from tests.helpers.reading import rows_in


@pytest.fixture
def duckdb(tmp_path):
    return partitions.duckdb(tmp_path / "guards.duckdb")


@pytest.fixture
def h2():
    return partitions.h2("guards")


def guarded_rows(database, **options):
    source = Sql(**{**database.source, "row_count": False, **options})
    return rows_in(source.batches())


# --- statements of the user before ours


POSTGRES_SETTINGS = (
    *("extra_float_digits = -10", "TimeZone = 'America/New_York'", "row_security = on"),
    *("IntervalStyle = sql_standard", "standard_conforming_strings = off"),
    *("synchronize_seqscans = on", "SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"),
    *("SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED", "array_nulls = off"),
)


@pytest.mark.parametrize("setting", POSTGRES_SETTINGS)
def test_a_setting_of_postgres_changes_no_value(postgresql, setting):
    postgresql.run(
        "DROP TABLE IF EXISTS exact",
        "CREATE TABLE exact AS SELECT 0.1::float8 / 3 AS f, array[0.1::float8 / 3] AS fs, "
        "1::real / 3 AS r, '2024-07-01 12:00+00'::timestamptz AS at, '2024-01-02'::date AS d, "
        "array['2024-07-01 12:00+00'::timestamptz] AS ats, interval '1 day 2 hours' AS i, "
        r"'\x00ff5c'::bytea AS b, array['\x00ff'::bytea] AS bs, array[NULL, 'NULL'] AS ns, "
        r"'a\b''c' AS t",
    )
    texts = {"types": {"at": "text", "d": "text", "b": "text"}}
    for options in (texts, {"partition_column": "ns", "partitions": 2}):
        plain = guarded_rows(postgresql, table="exact", **options)
        assert (
            guarded_rows(postgresql, table="exact", session_init=f"SET {setting}", **options)
            == plain
        )


@pytest.mark.parametrize(
    ("name", "value"), [("client_encoding", "LATIN1"), ("DateStyle", "'SQL, DMY'")]
)
def test_a_setting_that_a_driver_rests_on_is_set_back_or_refused(postgresql, name, value):
    query = "SELECT 'é😀' AS t, CAST(DATE '2024-01-02' AS text) AS d"
    options = {"session_init": f"SET {name} = {value}", "query": query}
    if "jars" in postgresql.source:
        with pytest.raises(UsageError, match=name):
            guarded_rows(postgresql, **options)
    else:
        assert guarded_rows(postgresql, **options) == [{"t": "é😀", "d": "2024-01-02"}]


def test_a_property_of_the_driver_does_not_let_it_write(postgres):
    postgresql = partitions.postgres(postgres, "jdbc")
    postgresql.run("DROP TABLE IF EXISTS safe", "CREATE TABLE safe (a int)")
    properties = {**postgresql.source["properties"], "readOnlyMode": "ignore"}
    source = Sql(**{**postgresql.source, "properties": properties}, table="safe")
    with (
        source.engine.connect() as connection,
        pytest.raises(UsageError, match="read-only transaction"),
    ):
        connection.run("INSERT INTO safe VALUES (1)")


MARIADB_SETTINGS = (
    *("time_zone = '-07:00'", "NAMES latin1", "character_set_results = latin1"),
    *("sql_select_limit = 1", "sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'", "sql_mode = 'TRADITIONAL'"),
    *("SESSION TRANSACTION READ WRITE", "autocommit = 0", "sql_auto_is_null = 1"),
    "sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
    "sql_mode = 'STRICT_TRANS_TABLES,PAD_CHAR_TO_FULL_LENGTH,NO_ZERO_DATE'",
)


@pytest.mark.parametrize("setting", MARIADB_SETTINGS)
def test_a_setting_of_mariadb_changes_no_value(maria, setting):
    maria.run(
        "CREATE OR REPLACE TABLE exact (at timestamp, t varchar(9), c char(5), n int)",
        "SET time_zone = '+00:00'",
        "INSERT INTO exact VALUES ('2024-07-01 12:00:00', _utf8mb4 x'c3a9f09f9880', 'a', 1), "
        "('2024-07-01 13:00:00', '', 'b', 2), ('2024-07-01 14:00:00', 'z', '', 3)",
    )
    for options in ({}, {"partition_column": "at", "partitions": 3}):
        plain = guarded_rows(maria, table="exact", ordered=True, **options)
        assert len(plain) == 3
        found = guarded_rows(
            maria, table="exact", ordered=True, session_init=f"SET {setting}", **options
        )
        assert found == plain


def test_a_session_of_mariadb_sees_one_moment_whatever_its_isolation(maria):
    maria.run("CREATE OR REPLACE TABLE moment (n int)", "INSERT INTO moment VALUES (1)")
    weak = "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"
    with Sql(**maria.source, table="moment", session_init=weak).engine.connect() as connection:
        maria.run("INSERT INTO moment VALUES (2)")
        assert connection.fetch("SELECT n FROM moment") == [(1,)]


def test_a_zone_of_h2_changes_no_value(h2):
    h2.run("CREATE TABLE exact AS SELECT TIMESTAMP WITH TIME ZONE '2024-07-01 12:00:00+00' AS at")
    plain = guarded_rows(h2, table="exact")
    assert guarded_rows(h2, table="exact", session_init="SET TIME ZONE '-07:00'") == plain


@pytest.mark.parametrize("setting", ["TimeZone = 'America/New_York'", "default_order = 'DESC'"])
@pytest.mark.slow
def test_a_setting_of_duckdb_changes_no_value(duckdb, setting):
    duckdb.run(
        "CREATE TABLE exact AS SELECT range AS n, TIMESTAMPTZ '2024-07-01 12:00:00+00' AS at "
        "FROM range(20)"
    )
    options = {"table": "exact", "partition_column": "n", "partitions": 4, "types": {"at": "text"}}
    plain = guarded_rows(duckdb, **options)
    assert len(plain) == 20
    assert guarded_rows(duckdb, session_init=f"SET {setting}", **options) == plain


# --- texts of the user inside ours


POSTGRES_ATTACKS = (
    "SELECT 1 AS a) AS q; COMMIT; INSERT INTO safe VALUES (1); SELECT * FROM (SELECT 1 AS a",
    "SELECT 1 AS a) AS q; COMMIT; INSERT INTO safe VALUES (1) --",
    "SELECT E'\\' ; COMMIT; INSERT INTO safe VALUES (1); SELECT ' AS a",
    "SELECT $$'$$ AS a) AS q; COMMIT; INSERT INTO safe VALUES (1); SELECT * FROM (SELECT $$'$$",
    "SELECT E'a'\n'b\\' ' AS a) AS q; COMMIT; INSERT INTO safe VALUES (1); SELECT '",
    "WITH w AS (INSERT INTO safe VALUES (1) RETURNING a) SELECT * FROM w",
    "INSERT INTO safe VALUES (1) RETURNING a",
    "SELECT nextval('safe_numbers') AS a",
    "SELECT set_config('transaction_read_only', 'off', false) AS a",
    "SELECT lo_create(0) AS a",
    "TABLE safe; COMMIT; INSERT INTO safe VALUES (1)",
    "COPY (SELECT 1) TO '/tmp/never-written'",
)


@pytest.mark.parametrize("query", POSTGRES_ATTACKS)
def test_no_query_writes_to_postgres(postgresql, query):
    postgresql.run(
        "DROP TABLE IF EXISTS safe",
        "CREATE TABLE safe (a int)",
        "DROP SEQUENCE IF EXISTS safe_numbers",
        "CREATE SEQUENCE safe_numbers",
    )
    # Some are one SELECT after all; what they do ends with the transaction.
    with contextlib.suppress(BeamTFRecordError):
        guarded_rows(postgresql, query=query)
    assert guarded_rows(postgresql, query="SELECT count(*) AS n FROM safe") == [{"n": 0}]
    objects = "SELECT count(*) AS n FROM pg_largeobject_metadata"
    assert guarded_rows(postgresql, query=objects) == [{"n": 0}]
    assert guarded_rows(postgresql, query="SELECT is_called AS c FROM safe_numbers") == [
        {"c": False}
    ]


@pytest.mark.parametrize(
    "where",
    [
        "a = 1); COMMIT; INSERT INTO safe VALUES (1); SELECT 1 FROM safe WHERE (a = 1",
        "a = 1) UNION ALL SELECT 1 FROM safe WHERE (a = 1",
        "a = 1) OR (a = 1",
        "a = 1; DROP TABLE safe",
    ],
)
@pytest.mark.slow
def test_a_condition_is_one_condition(postgresql, maria, duckdb, h2, where, tmp_path):
    file = partitions.sqlite(tmp_path / "guards.db")
    for database in (postgresql, maria, duckdb, h2, file):
        database.run("DROP TABLE IF EXISTS safe", "CREATE TABLE safe (a int)")
        database.run("INSERT INTO safe VALUES (1)")
        for partition in (
            {},
            {"partition_column": "A" if database.upper else "a", "partitions": 2},
        ):
            with pytest.raises(UsageError) as caught:
                guarded_rows(database, table="safe", where=where, **partition)
            assert "\n" not in str(caught.value)
        assert len(guarded_rows(database, table="safe")) == 1


QUERY_ENDS = (" ;", "; -- done", ";-- done\n\n", "\n;;\n-- a\r\n-- b\n/* c\nd */ ;")


def test_a_condition_may_end_with_a_comment_and_a_query_with_a_semicolon(
    postgresql, maria, duckdb, h2, tmp_path
):
    file = partitions.sqlite(tmp_path / "guards.db")
    for database in (postgresql, maria, duckdb, h2, file):
        database.run("DROP TABLE IF EXISTS safe", "CREATE TABLE safe (a int)")
        database.run("INSERT INTO safe VALUES (1), (2), (3)")
        for where in ("a > 1 -- and more", "a > 1 AND a < 4"):
            assert len(guarded_rows(database, table="safe", where=where)) == 2
        for end in QUERY_ENDS:
            query = f"SELECT a FROM safe WHERE a < 3{end}"
            assert len(guarded_rows(database, query=query)) == 2, end


def test_a_semicolon_inside_a_condition(postgres, duckdb, h2, tmp_path):
    native = partitions.postgres(postgres)
    for database in (native, duckdb, h2, partitions.sqlite(tmp_path / "guards.db")):
        database.run("DROP TABLE IF EXISTS safe", "CREATE TABLE safe (t varchar(9))")
        database.run("INSERT INTO safe VALUES ('x;'), ('y')")
        if database is h2:
            with pytest.raises(UsageError, match="--where holds a ';'"):
                guarded_rows(database, table="safe", where="t = 'x;'")
        else:
            assert len(guarded_rows(database, table="safe", where="t = 'x;'")) == 1


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'x; -- done'",
        "SELECT $$x; -- done$$",
        "SELECT 1 AS [x; -- done]",
        "SELECT 1 /* x; -- done */",
        "SELECT 1; SELECT 2 -- done",
        "SELECT 1; -- done\rSELECT 2",
        "SELECT 1 /*! LIMIT 0 */",
    ],
)
def test_no_part_of_a_query_is_taken_for_its_end(query):
    assert trimmed(query) == query


MARIADB_ATTACKS = (
    "SELECT 1 AS a INTO OUTFILE '{file}'",
    "SELECT 1 AS a) AS q INTO OUTFILE '{file}' -- ",
    "SELECT 1 AS a) AS q INTO OUTFILE '{file}' #",
    "SELECT 1 AS a) AS q INTO DUMPFILE '{file}' /*",
    "SELECT 1 AS a) AS q; INSERT INTO safe VALUES (1); SELECT * FROM (SELECT 1 AS a",
    "SELECT NEXTVAL(safe_numbers) AS a",
    "SELECT add_one() AS a",
    "INSERT INTO safe VALUES (1) RETURNING a",
)


@pytest.mark.parametrize("attack", MARIADB_ATTACKS)
def test_no_query_writes_by_mariadb(maria, attack, tmp_path):
    maria.run(
        "CREATE OR REPLACE TABLE safe (a int)",
        "CREATE OR REPLACE SEQUENCE safe_numbers",
        "CREATE OR REPLACE FUNCTION add_one() RETURNS int BEGIN INSERT INTO safe VALUES (1); "
        "RETURN 1; END",
    )
    tmp_path.chmod(0o777)
    file = tmp_path / "written"
    # The driver would pass several statements on.
    properties = {**maria.source["properties"], "allowMultiQueries": "true"}
    database = KeyedDatabase({}, maria.run, {**maria.source, "properties": properties})
    with pytest.raises(BeamTFRecordError) as caught:
        guarded_rows(database, query=attack.format(file=file))
    assert "\n" not in str(caught.value)
    assert not file.exists()
    with pytest.raises(BeamTFRecordError):
        guarded_rows(database, table="safe", where=f"1 = 1) INTO OUTFILE '{file}' -- ")
    assert not file.exists()
    assert guarded_rows(maria, table="safe") == []
    ((is_called,),) = [
        tuple(row.values())
        for row in guarded_rows(maria, query="SELECT LASTVAL(safe_numbers) AS c")
    ]
    assert is_called is None


@pytest.mark.slow
@pytest.mark.xdist_group("databases")
@pytest.mark.parametrize(
    "attack",
    [
        "INSERT INTO safe VALUES (1)",
        "SELECT 1 AS a) AS q; INSERT INTO safe VALUES (1); SELECT * FROM (SELECT 1 AS a",
    ],
)
def test_no_query_writes_by_h2(h2, attack):
    h2.run("DROP TABLE IF EXISTS safe", "CREATE TABLE safe (a int)")
    with pytest.raises(UsageError):
        guarded_rows(h2, query=attack)
    assert guarded_rows(h2, table="safe") == []


DUCKDB_ATTACKS = (
    "SELECT 1 AS a) AS q; COPY safe TO '{file}'; SELECT * FROM (SELECT 1 AS a",
    "SELECT * FROM query('COPY safe TO ''{file}''')",
    "COPY safe TO '{file}'",
    "SELECT * FROM read_csv('{other}')",
    "SELECT * FROM '{other}'",
    "SELECT nextval('safe_numbers') AS a",
    "INSERT INTO safe VALUES (1) RETURNING a",
)


@pytest.mark.parametrize("attack", DUCKDB_ATTACKS)
@pytest.mark.slow
def test_no_query_writes_or_leaves_the_file_by_duckdb(duckdb, attack, tmp_path):
    duckdb.run("CREATE TABLE safe (a int)", "CREATE SEQUENCE safe_numbers")
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    file = tmp_path / "written"
    with pytest.raises(UsageError) as caught:
        guarded_rows(duckdb, query=attack.format(file=file, other=other))
    assert "\n" not in str(caught.value)
    assert not file.exists()


@pytest.mark.slow
def test_duckdb_reads_other_files_where_the_user_says_so(duckdb, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    duckdb.run("CREATE TABLE safe (a int)")
    query = f"SELECT * FROM read_csv('{other}')"
    with pytest.raises(UsageError, match="--properties enable_external_access=true"):
        guarded_rows(duckdb, query=query)
    assert guarded_rows(duckdb, query=query, properties={"enable_external_access": "true"}) == [
        {"a": 1}
    ]


SQLITE_ATTACKS = (
    "SELECT 1 AS a) AS q; INSERT INTO safe VALUES (1); SELECT * FROM (SELECT 1 AS a",
    "SELECT 1 AS a; INSERT INTO safe VALUES (1)",
    "INSERT INTO safe VALUES (1) RETURNING a",
    "PRAGMA journal_mode = DELETE",
    "ATTACH '{file}' AS other",
    "SELECT load_extension('{file}') AS a",
    "SELECT * FROM pragma_journal_mode('DELETE')",
)


@pytest.mark.parametrize("attack", SQLITE_ATTACKS)
def test_no_query_writes_by_sqlite(attack, tmp_path):
    database = partitions.sqlite(tmp_path / "guards.db")
    database.run("CREATE TABLE safe (a int)")
    before = (tmp_path / "guards.db").read_bytes()
    with pytest.raises(BeamTFRecordError) as caught:
        guarded_rows(database, query=attack.format(file=tmp_path / "written"))
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["guards.db"]
    assert (tmp_path / "guards.db").read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO safe VALUES (1)", "PRAGMA query_only = OFF", "PRAGMA user_version = 7"],
)
def test_no_statement_before_ours_writes_by_sqlite(statement, tmp_path):
    database = partitions.sqlite(tmp_path / "guards.db")
    database.run("CREATE TABLE safe (a int)")
    before = (tmp_path / "guards.db").read_bytes()
    with contextlib.suppress(BeamTFRecordError):
        guarded_rows(database, table="safe", session_init=statement)
    assert [path.name for path in tmp_path.iterdir()] == ["guards.db"]
    assert (tmp_path / "guards.db").read_bytes() == before
