"""What a filter means: the results that `docs/filter.md` states, and the refusals in one line."""

from __future__ import annotations

import datetime
import math
import operator
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import UsageError
from beam_tfrecord.selection.evaluate import rows_that_match
from beam_tfrecord.selection.parse import parse_filter
from tests.helpers.effort import examples

BIG = 2**53
NAN = math.nan
T, F, N = True, False, None


def results(text, data):
    return rows_that_match(parse_filter(text), data).to_pylist()


def of(text: str, values: list, arrow: pa.DataType | None = None) -> list[bool | None]:
    return results(text, pa.record_batch({"x": pa.array(values, arrow)}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x > 1", [F, T, N]),
        ("x = 1 or x is null", [T, F, T]),
        ("not x = 1", [F, T, N]),
        ("1 < x", [F, T, N]),
        ("x between 2 and 3", [F, T, N]),
        ("x not between 2 and 3", [T, F, N]),
        ("x in (1, 5)", [T, F, N]),
        ("x in (1, NULL)", [T, N, N]),
        ("x not in (1, NULL)", [F, N, N]),
        ("x in (NULL)", [N, N, N]),
        ("x is not null", [T, T, F]),
        ("x = 1 and not x = 1", [F, F, N]),
        ("x = x", [T, T, N]),
        ('"x" = +1', [T, F, N]),
    ],
)
def test_logic_has_three_values(text, expected):
    assert of(text, [1, 2, None]) == expected


@pytest.mark.parametrize(
    ("text", "values", "arrow", "expected"),
    [
        # Integers and floats are not rounded to each other's type.
        ("x > 9007199254740992", [BIG, BIG + 1], pa.int64(), [F, T]),
        ("x > 9007199254740992.0", [BIG, BIG + 1], pa.int64(), [F, T]),
        ("x = 9007199254740993", [float(BIG)], pa.float64(), [F]),
        ("x <= 18446744073709551615", [2**64 - 1], pa.uint64(), [T]),
        ("x < 18446744073709551616", [2**64 - 1, None], pa.uint64(), [T, N]),
        ("x <> 1000", [0, None], pa.uint8(), [T, N]),
        ("x in (256, 1)", [0, 1], pa.uint8(), [F, T]),
        ("x = 0.5", [0, 1, None], pa.int8(), [F, F, N]),
        ("x = 0.1", [Decimal("0.10")], pa.decimal128(10, 2), [T]),
        ("x >= 0.105", [Decimal("0.10"), Decimal("0.11")], pa.decimal128(10, 2), [F, T]),
        ("x < 1e40", [Decimal("99.99")], pa.decimal128(4, 2), [T]),
        # A number with a point is the nearest double to a float, as in other languages.
        ("x = 0.1", [0.1], pa.float64(), [T]),
        ("x = 0.1", [0.1], pa.float32(), [F]),
        ("x < 1e400", [math.inf, 1e308], pa.float64(), [F, T]),
        # NaN as in IEEE 754; -0.0 is 0.0.
        ("x = x", [NAN, 1.0, None], pa.float64(), [F, T, N]),
        ("x > 0", [NAN, 1.0], pa.float64(), [F, T]),
        ("x <> 0", [NAN, -0.0], pa.float64(), [T, F]),
        ("x not in (0, 1)", [NAN, -0.0], pa.float64(), [T, F]),
        ("x between -1 and 1", [NAN, -0.0], pa.float64(), [F, T]),
        # Text by code points, without regard to language, and with its case.
        ("x < 'a'", ["B", "é", "😀"], None, [T, F, F]),
        ("x > '\uffff'", ["\U00010000", "\ufffe"], None, [T, F]),
        ("x = 'é'", ["é", "e\u0301"], None, [T, F]),
        ("x in ('', 'A')", ["", "a"], pa.large_string(), [T, F]),
        ("x = 'a'", ["a", None], pa.dictionary(pa.int8(), pa.string()), [T, N]),
        ("x = 'it''s'", ["it's"], pa.string_view(), [T]),
        ("x like 'a%'", ["a\nb", "A", "ba", None], None, [T, F, F, N]),
        ("x like '_'", ["😀", "", "ab"], None, [T, F, F]),
        ("x like 'a.*\\(%'", ["a.*\\(b", "axx(b"], None, [T, F]),
        ("x not like 'a_%'", ["axb", "a", None], None, [F, T, N]),
        ("x", [True, False, None], None, [T, F, N]),
        ("x < true", [True, False, None], None, [F, T, N]),
        ("x in (true)", [True, False, None], None, [T, F, N]),
        ("x > date '2000-02-29'", [datetime.date(2000, 3, 1), None], pa.date32(), [T, N]),
        ("x = date '2000-02-29'", [datetime.date(2000, 2, 29)], pa.date64(), [T]),
        ("x < timestamp '1970-01-01 00:00:00.5'", [0, 1], pa.timestamp("s"), [T, F]),
        ("x = timestamp '1970-01-01T00:00:00.000000001'", [0, 1], pa.timestamp("ns"), [F, T]),
        ("x < timestamp '9999-12-31'", [2**63 - 1], pa.timestamp("ns"), [T]),
        (
            "x = timestamp '1970-01-01 02:00:01+02:00'",
            [0, 1],
            pa.timestamp("s", "Asia/Tokyo"),
            [F, T],
        ),
        ("x = 1", [None], pa.null(), [N]),
        ("x is null", [[1], None], pa.list_(pa.int8()), [F, T]),
    ],
)
def test_values_compare_exactly(text, values, arrow, expected):
    assert of(text, values, arrow) == expected


def test_columns_compare_with_columns():
    data = pa.record_batch(
        {
            "i": pa.array([1, -1, None], pa.int64()),
            "f": pa.array([0.0, NAN, 0.0]),
            "d": pa.array([Decimal(1), Decimal("0.1"), None], pa.decimal128(38, 1)),
            "s": pa.array([1, 2, 3], pa.timestamp("s")),
            "ms": pa.array([1000, 2001, 2999], pa.timestamp("ms")),
        }
    )
    assert results("f <> i", data) == [T, T, N]
    assert results("f <> d", data) == [T, T, N]
    assert results("s = ms", data) == [T, F, F]
    assert results("s > ms", data) == [F, F, T]


NUMBERS = {
    pa.int64(): st.one_of(
        st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.integers(BIG - 2, BIG + 3)
    ),
    pa.uint64(): st.one_of(st.integers(0, 2**64 - 1), st.integers(BIG - 2, BIG + 3)),
    pa.int8(): st.integers(-128, 127),
    pa.float64(): st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.integers(BIG - 2, BIG + 3).map(float),
        st.sampled_from([-0.0, 0.5, 5e-324]),
    ),
    pa.float32(): st.floats(width=32, allow_nan=False, allow_infinity=False),
    pa.decimal128(20, 3): st.integers(-(10**20) + 1, 10**20 - 1).map(
        lambda digits: Decimal(f"{digits}e-3")
    ),
}
SIGNS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_numbers_compare_as_fractions_do(data):
    one, other = (data.draw(st.sampled_from([*NUMBERS])) for _ in range(2))
    pairs = data.draw(st.lists(st.tuples(NUMBERS[one], NUMBERS[other]), min_size=1, max_size=5))
    sign = data.draw(st.sampled_from([*SIGNS]))
    batch = pa.record_batch(
        {"a": pa.array([a for a, _ in pairs], one), "b": pa.array([b for _, b in pairs], other)}
    )
    expected = [SIGNS[sign](Fraction(a), Fraction(b)) for a, b in pairs]
    assert results(f"a {sign} b", batch) == expected
    literal = data.draw(st.one_of(*NUMBERS.values()))
    exact = Fraction(literal)
    text = str(Decimal(literal)) if isinstance(literal, float) else str(literal)
    if pa.types.is_floating(one) and not text.lstrip("-").isdecimal():
        exact = Fraction(float(exact))
    if abs(Decimal(text).adjusted()) <= 500:
        expected = [SIGNS[sign](Fraction(a), exact) for a, _ in pairs]
        assert results(f"a {sign} {text}", batch) == expected
        expected = [Fraction(a) in (3, exact) for a, _ in pairs]
        assert results(f"a in (3, {text})", batch) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x + 1 > 2", "'x + 1' at character 1 has arithmetic, which a filter cannot have: see"),
        ("x > 1 and lower(y) = 'a'", "'lower(y' at character 11 has LOWER, which a filter"),
        ("x ilike 'a'", "at character 1 has ILIKE, which a filter cannot have"),
        ("x is distinct from 1", "at character 1 has IS DISTINCT FROM, which"),
        ("x in (select y from z)", "at character 1 has query in IN, which"),
        ("x in (y)", "'y' at character 7 is a column in the list of IN"),
        ("case when x then y end", "has CASE, which a filter cannot have"),
        ("a.b = 1", "'a.b' at character 1 has a dot: fields of structs cannot be compared"),
        ("day > 2024-12-31", "write DATE '2024-12-31'"),
        ("when > 1", "is not SQL at 'when': write \"when\" if it is a column"),
        ("x = 1 y", "at character 1 has a word after the condition, which"),
        ("x = 1; drop table y", "'x = 1; drop table y' is not one condition: join them by AND"),
        ("x > 1 and", "--filter 'x > 1 and' is not SQL at 'and': see docs"),
        ("x", "compares column 'x' (number) with TRUE"),
        ("1", "'1' at character 1 is no condition: compare it with something"),
        ("1 = 1", "'1 = 1' at character 1 compares no column"),
        ("x = NULL", "compares with NULL, which is never true: use IS NULL"),
        ("x is 3", "'3' at character 6 cannot follow IS"),
        ("(x > 1) is null", "'x > 1' at character 2 is neither a column nor a literal"),
        ("x like x", "'x' at character 8 is not a text in single quotes"),
        ("x like 'a!%' escape '!'", "has ESCAPE, which a filter cannot have: see"),
        ("x > 1e501", "'1e501' at character 5 has an exponent beyond 500"),
        ("x = date '2001-02-29'", "is not a DATE of the form YYYY-MM-DD"),
        ("x = timestamp '2001-02-28 25:00'", "is not a TIMESTAMP of the form"),
        ("cast(x as text) = 'a'", "is converted to another type, which a filter cannot do"),
        ("x = ?", "--filter: 'x = ?' has PLACEHOLDER"),
        ("  ", "--filter is empty"),
        ("x = '\udc80'", "--filter is not valid Unicode at character 6"),
        ("(" * 5000 + "x = 1" + ")" * 5000, "too many levels of parentheses"),
        ("x > 1 and\nx ~ 2", "is not SQL at '~'"),
    ],
)
def test_all_else_is_refused_with_its_place(text, message):
    with pytest.raises(UsageError) as raised:
        of(text, [1, 2])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "arrow", "message"),
    [
        ("x = 1", pa.string(), "column 'x' (text) with 1: quote the literal"),
        ("x = '1'", pa.int8(), "column 'x' (number) with '1': write a number without quotes"),
        ("x = 1", pa.bool_(), "column 'x' (boolean) with 1: write TRUE or FALSE"),
        ("x = 'a'", pa.binary(), "column 'x' (binary) with 'a': use --map"),
        ("x = 1", pa.list_(pa.int8()), "column 'x' (list<item: int8>) with 1: use --map"),
        ("x > '2020-01-01'", pa.date32(), "(date) with '2020-01-01': write DATE '2020-01-01'"),
        ("x > date '2020-01-01'", pa.timestamp("s"), "write TIMESTAMP '2024-12-31 23:59:59'"),
        ("x > timestamp '2020-01-01'", pa.timestamp("s", "UTC"), "such as Z"),
        ("x = y", pa.int8(), "column 'x' (number) with column 'y' (text): use --map"),
        ("x like 'a'", pa.int8(), "column 'x' (number) with a pattern"),
        ("z is null", pa.int8(), "column 'z' of --filter is not in the input"),
    ],
)
def test_types_that_do_not_compare_are_refused_before_there_are_rows(text, arrow, message):
    schema = pa.schema({"x": arrow, "y": pa.string()})
    data = pa.RecordBatch.from_pylist([], schema=schema)
    with pytest.raises(UsageError) as raised:
        results(text, data)
    assert message in str(raised.value)


@pytest.mark.slow
def test_a_long_chain_and_a_long_list_are_fine():
    chain = " or ".join(f"x = {number}" for number in range(0, 6000, 2))
    assert of(chain, [3, 4]) == [F, T]
    assert of(f"x in ({', '.join(map(str, range(0, 60000, 2)))})", [3, 59998]) == [F, T]


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("x>1 AND y='a'", " \"x\" > 1\n and (y = 'a')", True),
        ("1 < x", "x > 1", True),
        ("x not in (1)", "not (x in (1))", True),
        ("x != 1 -- why", "x <> 1", True),
        ("x = timestamp '2020-01-01 01:00+01:00'", "x = timestamp '2020-01-01T00:00:00.0Z'", True),
        ("x = 9007199254740993", "x = 9007199254740993e0", False),
        ("x = 0.1234567890123456789012345678901", "x = 0.1234567890123456789012345678902", False),
        ("x = 'a'", 'x = "a"', False),
        ("x = date '2020-01-01'", "x = timestamp '2020-01-01'", False),
    ],
)
def test_the_normal_form_is_that_of_the_meaning(one, other, is_equal):
    assert (str(parse_filter(one)) == str(parse_filter(other))) is is_equal


def test_the_normal_form_parses_to_itself():
    text = (
        "(a > 1 and not b) or c in ('x', NULL) or not d like 'a%' "
        "or e between date '2020-01-01' and date '2020-02-01' or \"f \"\"g\" is null "
        "or h < timestamp '2020-01-01 00:00:00.25+01' or i = -1.50 or j is not null"
    )
    condition = parse_filter(text)
    assert parse_filter(str(condition)) == condition
