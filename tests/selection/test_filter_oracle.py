"""Filters against SQLite, over generated conditions and rows.

Left out is what SQLite defines in another way: it has no NaN, no booleans or decimals of its own,
and rounds integers beyond int64. Dates and times are texts there, which are in the same order.
"""

import datetime
import sqlite3

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.selection.evaluate import rows_that_match
from beam_tfrecord.selection.parse import parse_filter, quoted_text
from tests.helpers.effort import examples

BIG = 2**53
SIGNS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
TEXTS = st.one_of(
    st.sampled_from(["", "a", "A", "ab", "a%b", "a_b", "é", "e\u0301", "😀", "it's", "\n", "\\"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
)
WHOLE = st.one_of(
    st.integers(-3, 3), st.integers(BIG - 2, BIG + 2), st.sampled_from([-(2**63) + 1, 2**63 - 1])
)
FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, -1.5, 3.0, float(BIG), 1e300]), st.integers(-3, 3).map(float)
)
DAYS = st.dates(datetime.date(1990, 1, 1), datetime.date(1990, 1, 5))
MOMENTS = st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(1990, 1, 1, 0, 0, 2))
# A literal of each kind as SQL, by the letter of the columns that it is compared with.
NUMBER = st.one_of(WHOLE.map(str), st.sampled_from(["0.5", "-1.5", "3.0", "25e-1", ".5", "3."]))
LITERALS = {
    "i": NUMBER,
    "f": NUMBER,
    "t": TEXTS.map(quoted_text),
    "d": DAYS.map(lambda day: f"DATE '{day}'"),
    "m": MOMENTS.map(lambda moment: f"TIMESTAMP '{moment}'"),
}
COLUMNS = {"i": WHOLE, "f": FLOATS, "t": TEXTS, "d": DAYS, "m": MOMENTS}
TYPES = {
    "i": pa.int64(),
    "f": pa.float64(),
    "t": pa.string(),
    "d": pa.date32(),
    "m": pa.timestamp("us"),
}


@st.composite
def patterns(draw, column):
    words = draw(st.lists(st.one_of(TEXTS, st.sampled_from(["%", "_"]))))
    negated = draw(st.sampled_from(["", "NOT "]))
    return f"{column} {negated}LIKE {quoted_text(''.join(words))}"


@st.composite
def leaves(draw):
    """Draw a comparison of a column: there are two columns of each kind."""
    kind = draw(st.sampled_from("iftdm"))
    column, other = draw(st.permutations([f"{kind}1", f"{kind}2"]))
    literal = LITERALS[kind]
    negated = draw(st.sampled_from(["", "NOT "]))
    forms = [
        st.tuples(SIGNS, literal).map(lambda pair: f"{column} {pair[0]} {pair[1]}"),
        st.tuples(SIGNS, literal).map(lambda pair: f"{pair[1]} {pair[0]} {column}"),
        SIGNS.map(lambda sign: f"{column} {sign} {other}"),
        st.lists(st.one_of(literal, st.just("NULL")), min_size=1, max_size=3).map(
            lambda found: f"{column} {negated}IN ({', '.join(found)})"
        ),
        st.tuples(literal, literal).map(
            lambda pair: f"{column} {negated}BETWEEN {pair[0]} AND {pair[1]}"
        ),
        st.just(f"{column} IS {negated}NULL"),
    ]
    if kind == "t":
        forms.append(patterns(column))
    if kind in "if":
        forms.append(SIGNS.map(lambda sign: f"i1 {sign} f1"))
    return draw(st.one_of(forms))


def conditions(leaves, most):
    """Return a strategy of conditions of at most so many leaves."""
    return st.recursive(
        leaves,
        lambda part: st.one_of(
            st.tuples(part, st.sampled_from(["AND", "OR"]), part).map(
                lambda found: f"({found[0]}) {found[1]} ({found[2]})"
            ),
            part.map(lambda one: f"NOT ({one})"),
        ),
        max_leaves=most,
    )


def tables():
    names = [f"{kind}{number}" for kind in COLUMNS for number in (1, 2)]
    row = st.tuples(*(st.one_of(st.none(), COLUMNS[name[0]]) for name in names))
    schema = pa.schema({name: TYPES[name[0]] for name in names})
    return st.lists(row, min_size=1, max_size=6).map(
        lambda rows: pa.RecordBatch.from_pylist(
            [dict(zip(names, one, strict=True)) for one in rows], schema=schema
        )
    )


def in_sqlite(value):
    return str(value) if isinstance(value, datetime.date) else value


@settings(max_examples=examples(400), deadline=None)
@given(tables(), conditions(leaves(), 6))
def test_sqlite_says_the_same(data, text):
    with sqlite3.connect(":memory:") as database:
        database.execute("PRAGMA case_sensitive_like = ON")
        columns = {"i": "INTEGER", "f": "REAL", "t": "TEXT", "d": "TEXT", "m": "TEXT"}
        declared = ", ".join(f"{name} {columns[name[0]]}" for name in data.schema.names)
        database.execute(f"CREATE TABLE x ({declared})")
        marks = ", ".join("?" * data.num_columns)
        rows = [tuple(map(in_sqlite, row.values())) for row in data.to_pylist()]
        database.executemany(f"INSERT INTO x VALUES ({marks})", rows)
        plain = text.replace("DATE '", "'").replace("TIMESTAMP '", "'")
        found = database.execute(f"SELECT ({plain}) FROM x ORDER BY rowid").fetchall()
    expected = [None if value is None else bool(value) for (value,) in found]
    assert rows_that_match(parse_filter(text), data).to_pylist() == expected
