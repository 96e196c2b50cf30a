"""The type contract of jdbc: databases: one case a type and database, extremes and NULL included.

Expected values are those that the SQL literals mean, written out; times as ISO text, because
Python has neither nanoseconds nor years before 1.
"""

import pyarrow as pa
import pytest

from tests.helpers.databases import jdbc_mariadb
from tests.helpers.databases.jdbc_cases import H2_CASES, MARIADB_CASES, POSTGRES_CASES, US
from tests.helpers.databases.jdbc_database import Database
from tests.helpers.databases.jdbc_drivers import H2, MARIADB, MYSQL, POSTGRES, driver_jars
from tests.helpers.databases.postgres import PASSWORD
from tests.helpers.marks import needs

pytestmark = needs("databases")


def values_of(array):
    """Return values; dates and times as ISO text."""
    if pa.types.is_temporal(array.type):
        if pa.types.is_timestamp(array.type):
            array = array.cast(pa.timestamp(array.type.unit))
        array = array.cast(pa.string())
    elif pa.types.is_decimal(array.type):
        array = array.cast(pa.string())
    return array.to_pylist()


def same(found, expected):
    """Compare by representation, so that NaN is NaN and 1.0 is not 1."""
    return list(map(repr, found)) == list(map(repr, expected))


@pytest.fixture(scope="module")
def h2():
    return Database("jdbc:h2:mem:contract;DB_CLOSE_DELAY=-1", driver_jars(H2))


@pytest.fixture(scope="module")
def postgres(postgres):
    url = f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres"
    database = Database(url, driver_jars(POSTGRES), "tester", (("password", PASSWORD),))
    database.run(
        "DROP DOMAIN IF EXISTS small CASCADE",
        "DROP TYPE IF EXISTS mood CASCADE",
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN small AS int",
    )
    return database


@pytest.fixture(scope="module", params=["mariadb", "mysql"])
def mariadb(request, mariadb):
    jars = driver_jars(MARIADB if request.param == "mariadb" else MYSQL)
    secret = (("password", jdbc_mariadb.PASSWORD),)
    url = f"jdbc:{request.param}://127.0.0.1:{mariadb.port}/t?sessionVariables=sql_mode=''"
    return Database(url, jars, jdbc_mariadb.USER, secret)


def check(database, case, **options):
    declared, literals, arrow, expected = case
    column, found, misfits = database.read(declared, *literals, **options)
    assert (column.arrow, misfits) == (arrow, ())
    assert found is not None
    assert same(values_of(found), [*expected, None])


@pytest.mark.parametrize("case", H2_CASES, ids=lambda case: case[0])
def test_h2(h2, case):
    check(h2, case)


@pytest.mark.parametrize("case", POSTGRES_CASES, ids=lambda case: case[0])
def test_postgres(postgres, case):
    check(postgres, case)


@pytest.mark.parametrize("case", MARIADB_CASES, ids=lambda case: case[0])
def test_mariadb(mariadb, case):
    check(mariadb, case, null=" NULL DEFAULT NULL")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (pa.float64(), [1.2345677614212036, 16777215.0]),
        (pa.string(), ["1.2345677614212036", "16777215"]),
    ],
)
def test_floats_of_mariadb_as_other_types(mariadb, wanted, expected):
    _, found, misfits = mariadb.read("float", "1.2345678", "16777215", wanted=wanted)
    assert (found.to_pylist(), misfits) == ([*expected, None], ())


@pytest.mark.parametrize(
    ("declared", "literal", "expected"),
    [
        ("date", "'infinity'", "is 'infinity', which date32[day] cannot hold: pass --types v=text"),
        ("timestamp", "'infinity'", "cannot hold: pass --types v=text"),
        ("time", "'24:00:00'", "is '24:00:00', which time64[us] cannot hold: pass --types v=text"),
        (
            "numeric(10, 2)",
            "'NaN'",
            "is 'NaN', which decimal128(10, 2) cannot hold: pass --types v=text",
        ),
    ],
)
def test_postgres_values_that_arrow_has_not_are_misfits_and_text(
    postgres, declared, literal, expected
):
    _, found, (message,) = postgres.read(declared, literal)
    assert expected in message
    assert found.to_pylist() == [None, None]
    _, text, misfits = postgres.read(declared, literal, wanted=pa.string())
    assert (text.to_pylist(), misfits) == ([literal.strip("'"), None], ())


@pytest.mark.parametrize(
    ("declared", "literal", "text"),
    [("date", "'0000-00-00'", "0000-00-00"), ("datetime", "'0000-00-00'", "0000-00-00 00:00:00")],
)
def test_zero_dates_of_mariadb_are_misfits_and_text(mariadb, declared, literal, text):
    nullable = " NULL DEFAULT NULL"
    _, found, (message,) = mariadb.read(declared, literal, null=nullable)
    assert message.startswith(f"is {text!r}, which ")
    assert found.to_pylist() == [None, None]
    _, found, misfits = mariadb.read(declared, literal, wanted=pa.string(), null=nullable)
    assert (found.to_pylist(), misfits) == ([text, None], ())


def test_time_of_mariadb_is_a_duration(mariadb):
    _, found, misfits = mariadb.read("time", "'-838:59:59'", "'12:00:01'", null=" NULL")
    assert (found.to_pylist(), misfits) == (["-838:59:59", "12:00:01", None], ())


@pytest.mark.parametrize("arrays", ["refuse", "list"])
def test_arrays_are_read_as_text(postgres, h2, arrays):
    for database, literal, text in ((postgres, "'{1,NULL}'", "{1,NULL}"), (h2, "array[1]", "[1]")):
        column, found, _ = database.read("int array", literal, arrays="text")
        assert (column.arrow, found.to_pylist()) == (pa.string(), [text, None])
        column, _, _ = database.read("int array", literal, arrays=arrays)
        assert column.refusal.endswith("pass --arrays text")


WANTED = [
    ("bigint", "7", pa.int32(), [7, None]),
    ("numeric(20, 0)", "18446744073709551615", pa.uint64(), [2**64 - 1, None]),
    ("timestamp(9)", "timestamp '2024-01-02 03:04:05'", US, ["2024-01-02 03:04:05.000000", None]),
    ("numeric(10, 2)", "1.50", pa.decimal128(20, 4), ["1.5000", None]),
    ("varbinary(9)", "X'00ff'", pa.string(), ["00ff", None]),
]


@pytest.mark.parametrize(("declared", "literal", "wanted", "expected"), WANTED)
def test_types_that_the_user_wants(h2, declared, literal, wanted, expected):
    column, found, misfits = h2.read(declared, literal, wanted=wanted)
    assert (column.arrow, misfits) == (wanted, ())
    assert same(values_of(found), expected)


@pytest.mark.parametrize(
    ("declared", "literal", "wanted", "message"),
    [
        ("numeric(3, 1)", "1.5", pa.int64(), "is '1.5', which int64 cannot hold"),
        (
            "numeric(20, 2)",
            "12345.67",
            pa.decimal128(4, 2),
            "is '12345.67', which decimal128(4, 2) cannot",
        ),
        ("numeric(20, 3)", "1.125", pa.decimal128(20, 2), "which decimal128(20, 2) cannot hold"),
    ],
)
def test_values_that_do_not_fit_what_the_user_wants(h2, declared, literal, wanted, message):
    _, found, misfits = h2.read(declared, literal, wanted=wanted)
    assert found.to_pylist() == [None, None]
    assert [message in one for one in misfits] == [True]


def test_types_that_cannot_be_exact_are_refused(h2):
    column, _, _ = h2.read("timestamp", "timestamp '2024-01-01 00:00:00'", wanted=pa.date32())
    assert column.refusal == "it cannot be read as date32[day] exactly: cast it in --query"


def test_unbounded_numbers_of_postgres_as_decimals(postgres):
    wanted = pa.decimal128(20, 2)
    column, found, misfits = postgres.read("numeric", "12.5", "'NaN'", "1.234", wanted=wanted)
    assert (column.arrow, values_of(found)) == (wanted, ["12.50", None, None, None])
    assert ["is 'NaN'" in misfits[0], "is '1.234'" in misfits[1]] == [True, True]
