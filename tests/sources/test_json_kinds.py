"""The kinds of JSON values: rows that are known by their kinds are looked at as others are."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.sources.json import Json
from tests.helpers.effort import examples

_SCALARS = st.sampled_from(
    [
        *("0", "-0", "7", "-12", "01", "1.", ".5", "+1", "-", "0.5", "1e3", "-2E-7", "1e", "1e400"),
        *("9007199254740992", "9007199254740993", "-9007199254740993", "123456789012345678"),
        *("1234567890123456789", "9" * 30, "9" * 601, "9" * 5000, "NaN", "-NaN", "Infinity"),
        *("-Infinity", "Inf", "null", "nul", "true", "false", "True", "nullx"),
        *('""', '"x"', '"\\n\\"\\\\\\/"', '"\\x"', '"\\u00e9"', '"\\u12"', '"\u00e9"', '"\t"'),
        *('"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00"', '"\\ud83d\\ud83d\\ude00"', '"\\\\ud83d"'),
        *('"\x7f"', '"\U0001f600"', '"\ud83d"', '"a', "'a'", '"{}[],:"'),
    ]
)
_KEYS = st.sampled_from(
    [
        *('"a"', '"b"', '"\\u0061"', '"\u00e9"', '"\\u00e9"', '"\\u00C9"', '""', '"\\\\"', '"\\""'),
        *('"\\u20ac"', '"\u20ac"', '"\\ud83d\\ude00"', '"\U0001f600"', '"\\ud83d"', '"a', "a", "1"),
    ]
)
_SPACE = st.sampled_from(["", "", "", " ", "\t", " \r ", "\x0b", "\u00a0"])


def _joined(parts, ends):
    return st.tuples(st.lists(parts, max_size=4), _SPACE).map(
        lambda of: f"{ends[0]}{of[1]}{f'{of[1]},{of[1]}'.join(of[0])}{of[1]}{ends[1]}"
    )


def _object(values):
    pairs = st.tuples(_KEYS, _SPACE, _SPACE, values)
    return _joined(pairs.map(lambda of: f"{of[0]}{of[1]}:{of[2]}{of[3]}"), "{}")


_VALUES = st.recursive(_SCALARS, lambda inner: _object(inner) | _joined(inner, "[]"), max_leaves=5)
_DEEP = st.sampled_from([98, 99, 100]).map(lambda depth: f'{{"a":{"[" * depth}{"]" * depth}}}')
_ROWS = st.one_of(
    _object(_VALUES),
    _object(_VALUES).map(lambda row: f"{row} "),
    _DEEP,
    st.tuples(_object(_VALUES), st.integers(0, 40), st.sampled_from('{}[],:"\\\n 1etn\x00')).map(
        lambda of: of[0][: of[1]] + of[2].replace("\n", "") + of[0][of[1] + 1 :]
    ),
)


def _found(path, rows):
    """Return the types of a file of these rows, or what is wrong with it."""
    path.write_bytes(b"".join(row.encode("utf-8", "surrogatepass") + b"\n" for row in rows))
    try:
        return Json(path).schema()
    except (DataError, SchemaConflict) as error:
        # Which values are named may differ: PyArrow reads an integer as a fraction, too.
        return type(error)


@pytest.mark.slow
@given(rows=st.lists(_ROWS, min_size=1, max_size=6), times=st.sampled_from([2, 40]))
@settings(max_examples=examples(500), deadline=None)
def test_the_same_rows_again_have_the_same_types(rows, times, tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "x.jsonl"
    assert _found(path, rows * times) == _found(path, rows)


def test_thousands_of_keys_are_found_again(tmp_path):
    rows = [json.dumps({f"key{number}": number, "id": "x"}) for number in range(3000)]
    assert _found(tmp_path / "x.jsonl", rows * 2) == _found(tmp_path / "x.jsonl", rows)
    assert len(Json(tmp_path / "x.jsonl").schema()) == 3001


@pytest.mark.parametrize("place", [0, 500, 999])
def test_an_integer_that_no_double_holds_is_found_among_fractions(tmp_path, place):
    rows = [json.dumps({"a": [{"b": number + 0.5}], "id": "1" * 20}) for number in range(1000)]
    rows[place] = '{"a": [{"b": -9007199254740993}], "id": ""}'
    (tmp_path / "x.jsonl").write_text("\n".join(rows))
    with pytest.raises(SchemaConflict, match=rf"integer beyond 2\^53 in x\.jsonl:{place + 1}\b"):
        Json(tmp_path / "x.jsonl").schema()
