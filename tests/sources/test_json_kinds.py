"""The kinds of JSON values: PyArrow leaves out no row from which Python would learn."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError, SchemaConflict
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.json.types import BIG, Finder, JsonInference, infer_schema
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


def _lines(rows):
    texts = [row.encode("utf-8", "surrogatepass") for row in rows]
    return list(enumerate((text.strip(b" \t\r\n") for text in texts), 1))


def _found(rows):
    """Return the types in rows, or what is wrong with them."""
    finder = Finder("x.jsonl:")
    finder.add(_lines(rows))
    file = InputFile("x.jsonl", "x.jsonl", 0)
    one = JsonInference(file, 0, finder.row, finder.fault)
    try:
        return str(infer_schema([one], types={}, columns=None)), finder.fault
    except (DataError, SchemaConflict) as error:
        # Which values are named may differ: PyArrow reads an integer as a fraction, too.
        return type(error), finder.fault


@pytest.mark.slow
@given(st.lists(_ROWS, min_size=1, max_size=6), st.sampled_from([1, 2, 40]))
@settings(max_examples=examples(500), deadline=None)
def test_the_types_are_those_that_python_finds_in_every_row(rows, times):
    # The same rows again are known, unless they are wrong.
    rows = rows * times
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finder, "_is_known", lambda self, lines: False)
        expected = _found(rows)
    assert _found(rows) == expected


def test_bytes_that_are_not_utf8_are_a_fault():
    rows = [b'{"a": "x"}', b'{"a": "\xed\xa0\xbd"}', b'{"a": "\xff"}']
    finder = Finder("x.jsonl:")
    finder.add(list(enumerate(rows, 1)))
    assert finder.fault == "x.jsonl:2 is not UTF-8 (byte 8)"


def test_thousands_of_keys_are_found_again():
    rows = [json.dumps({f"key{number}": number, "id": "x"}) for number in range(3000)]
    assert _found(rows * 2) == _found(rows)
    assert _found(rows)[0].count("key") == 3000


@pytest.mark.parametrize("place", [0, 500, 999])
def test_an_integer_that_no_double_holds_is_found_among_fractions(place):
    rows = [json.dumps({"a": [{"b": number / 8}], "id": "1" * 20}) for number in range(1000)]
    rows[place] = '{"a": [{"b": -9007199254740993}], "id": ""}'
    finder = Finder("x.jsonl:")
    finder.add(_lines(rows))
    found = finder.row.inner["a"].inner[None].inner["b"]
    assert found.kinds[BIG] == f"x.jsonl:{place + 1}"
