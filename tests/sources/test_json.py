"""The JSON source: rows, types and faults as Python's own json module has them."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, SchemaConflict, UsageError
from beam_tfrecord.sources import json_text as text_module
from beam_tfrecord.sources.json import Json
from tests.helpers.effort import examples
from tests.helpers.reading import batches_of, messages_of, rows_of


def _faults(source):
    return messages_of(source, pa.schema({"a": pa.int64()}))


def _file(directory, data, name="x.jsonl"):
    path = directory / name
    path.write_bytes(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    return path


# --- against Python's json module ---------------------------------------------------------------

_TEXT = st.text(max_size=8) | st.sampled_from(
    [
        "2024-01-02",
        "2024-01-02T03:04:05",
        "12",
        "null",
        "\0",
        "\\",
        '"',
        "},{",
        "[",
        "\x7f",
        "\u2028",
    ]
)
_INTS = st.integers(-(2**63), 2**63 - 1)
_DOUBLES = st.floats(allow_nan=False, allow_infinity=False)
_NUMBERS = st.integers(-(2**53), 2**53) | _DOUBLES


def _nullable(values):
    return st.none() | values


def _deeper(inner):
    """Return strategies of strategies: of lists and of objects with some keys."""
    keys = st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True)
    return inner.map(lambda of: st.lists(_nullable(of), max_size=3)) | st.tuples(keys, inner).map(
        lambda pair: st.fixed_dictionaries({}, optional=dict.fromkeys(pair[0], _nullable(pair[1])))
    )


_COLUMN = st.recursive(
    st.sampled_from([_TEXT, _INTS, _DOUBLES, _NUMBERS, st.booleans()]), _deeper, max_leaves=3
)


@st.composite
def _documents(draw):
    names = draw(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4, unique=True))
    of = {name: _nullable(draw(_COLUMN)) for name in names}
    return draw(st.lists(st.fixed_dictionaries({}, optional=of), max_size=12))


def _filled(value, arrow):
    """Return a value as Arrow has it: with null for missing keys, and numbers of its type."""
    if value is None:
        return None
    if pa.types.is_struct(arrow):
        return {field.name: _filled(value.get(field.name), field.type) for field in arrow}
    if pa.types.is_list(arrow):
        return [_filled(inner, arrow.value_type) for inner in value]
    return float(value) if pa.types.is_floating(arrow) else value


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in type, too, and in the sign of zero."""
    return repr(one) == repr(other)


@given(rows=_documents(), data=st.data())
@settings(max_examples=examples(150), deadline=None)
def test_rows_are_those_of_pythons_json(rows, data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("json")
    ends = st.sampled_from(["\n", "\r\n", " \n", "\n\n", "\n \t\n"])
    ascii_, space = (
        data.draw(st.booleans()),
        data.draw(st.sampled_from([(",", ":"), (" , ", " : ")])),
    )
    text = "".join(
        json.dumps(row, ensure_ascii=ascii_, separators=space) + data.draw(ends) for row in rows
    )
    chunk_bytes = data.draw(st.sampled_from([16, 50, 2**20]))
    source = Json(_file(directory, text), chunk_bytes=chunk_bytes)
    schema = source.schema()
    expected = [
        {field.name: _filled(row.get(field.name), field.type) for field in schema} for row in rows
    ]
    assert {*schema.names} == {name for row in rows for name in row}
    assert _same(rows_of(source), expected)


@given(rows=_documents(), data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_all_forms_have_the_same_rows(rows, data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("json")
    ascii_ = data.draw(st.booleans())
    lines = "".join(json.dumps(row, ensure_ascii=ascii_) + "\n" for row in rows)
    indent = data.draw(st.sampled_from([None, 1, 2]))
    array = json.dumps(rows, ensure_ascii=ascii_, indent=indent)
    objects = "".join(json.dumps(row, ensure_ascii=ascii_, indent=1) + "\n" for row in rows)
    # An object without keys is on one line, so others would be taken for JSON Lines, too.
    objects = "" if rows and not rows[0] else objects
    expected = rows_of(Json(_file(directory, lines)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "BLOCK_BYTES", data.draw(st.sampled_from([1, 7, 64, 2**20])))
        assert _same(rows_of(Json(_file(directory, array, "x.json"))), expected)
        assert _same(rows_of(Json(_file(directory, lines, "x.json"))), expected)
        if objects:
            assert _same(rows_of(Json(_file(directory, objects, "x.json"))), expected)


_ODD = [
    *('{"a": 1}', '{"a": 1.0}', '{"a": -0}', '{"a": -0.0}', '{"a": 1e400}', '{"a": 1e-400}'),
    *('{"a": 9223372036854775807}', '{"a": 9223372036854775808}', '{"a": -9223372036854775809}'),
    *('{"a": 9007199254740993}', '{"a": 123456789012345678901234567890}', '{"a": NaN}'),
    *('{"a": Infinity}', '{"a": 1, "a": 2}', '{"a": "\\ud800"}', '{"a": "\\ud83d\\ude00"}'),
    *('{"\\ud800": 1}', '{"a": "\\udc00\\ud800"}', '{"a": "\\u0000"}', '{"a": "\0"}'),
    *('{"a": "\t"}', '{"a": "\\x"}', '{"a": true}', '{"a": null}', "{}", "null", "[1]", '"x"'),
    *("1", '{"a": 1} null', '{"a": 1} null {"a": 1}', '{"a": 1}{"a": 2}', '{"a": 1},'),
    *('{"a": 1', '{"a": }', '{"a"}', '{"a": 1,}', "{,}", '{"a": 01}', '{"a": .5}', '{"a": +1}'),
    *("{'a': 1}", '{"a": 1} // c', '{"A": 1}', '{"a": "1"}', '{"a": "2024-01-02"}', '{"a": {}}'),
    *('{"a": []}', '{"a": [1]}', '{"b": 1, "b": 2}', '{"b": {"c": 1, "c": 2}}', '{"b": NaN}'),
    *('{"b": "\\ud800"}', '{"a": 1}\x00', '{"a": 1}\x0b', '\ufeff{"a": 1}', '{"a": 1}\u00a0'),
    *('{"a": ' + "[" * 200 + "]" * 200 + "}", '{"b":' * 200 + "1" + "}" * 200, '{"": 1}'),
    *('{"b": "' + "[" * 300 + '"}', '{"a": "x\\\\"}', '{"a": "\\\\\\""}', '{"a": 1e2}'),
    *('{"a": 5}{"b": {}', "{}}", '{"a":[{}', "{}]}", '{"a": 1}\r{"a": 2}', '{"a": tru}'),
]


def _depth(value: Any) -> int:
    """Return the depth of a value whose objects are lists of pairs."""
    if isinstance(value, tuple):
        return _depth(value[1])
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def _judge(line, arrow):
    """Return the value of the column `a` on a line by Python's json module alone.

    Raises:
        ValueError: It is not a row of that type.
    """
    parse_int = float if arrow == pa.float64() else int
    pairs = json.loads(line, object_pairs_hook=lambda pairs: pairs, parse_int=parse_int)
    if not line.startswith("{"):
        raise ValueError("not an object")
    json.dumps(pairs, ensure_ascii=False).encode()
    # A key that is not read may be there twice.
    if [name for name, _ in pairs].count("a") > 1:
        raise ValueError("a key twice")
    value = dict(pairs).get("a")
    if value is None:
        return None
    if _depth(value) > 99:
        raise ValueError("too deep")
    if arrow == pa.string():
        if isinstance(value, str):
            return value
        # The text that stands for the value: all members of `_ODD` have it after the colon.
        return line.partition(": ")[2].rpartition("}")[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and arrow == pa.int64()):
        raise ValueError("another kind")
    if isinstance(value, float) and math.isinf(value) and "Infinity" not in line:
        raise ValueError("too large for a double")
    if arrow == pa.int64() and not -(2**63) <= value < 2**63:
        raise ValueError("too large")
    return value


@given(
    lines=st.lists(st.sampled_from(_ODD), min_size=1, max_size=8),
    arrow=st.sampled_from([pa.int64(), pa.float64(), pa.string()]),
)
@settings(max_examples=examples(400), deadline=None)
def test_every_line_is_right_or_a_reject(lines, arrow, tmp_path_factory):
    path = _file(tmp_path_factory.mktemp("json"), "".join(f"{line}\n" for line in lines))
    source = Json(path)
    (unit,) = source.all_units(source.all_scans())
    found = {}
    for batch in source.read(unit, pa.schema({"a": arrow})):
        assert batch.origin is not None
        numbers = batch.origin.row_numbers(batch.num_rows).tolist()
        found |= dict(zip(numbers, batch.data.column(0).to_pylist(), strict=True))
        for reject in batch.rejects:
            assert reject.address == f"x.jsonl:{reject.row + 1}"
            assert reject.address in reject.message
            assert "\n" not in reject.message
            found[reject.row] = ValueError
    for number, line in enumerate(lines):
        # A byte order mark begins a file, not a row.
        line = line.removeprefix("\ufeff") if number == 0 else line
        try:
            expected = _judge(line, arrow)
        except (ValueError, RecursionError):
            expected = ValueError
        assert _same(found.pop(number), expected), line
    assert not found


def test_a_key_twice_is_a_reject_at_any_depth(tmp_path):
    """Also of a key that no other row has, and however it is written."""
    rows = [
        *('{"a": 1}', '{"b": 1, "\\u0062": 2}', '{"o": {"p": 1, "q": {"p": 1}}}'),
        *('{"o": {"p": 1, "p": 2}}', '{"l": [{"a": 1}, {"a": 1}]}', '{"l": [{"a": 1, "a": 1}]}'),
        *('{"m": [{"a": 1}, {"o": {"\\ud83d\\ude00": 1, "\U0001f600": 2}}]}', '{"a": 2}'),
    ]
    path = _file(tmp_path, "".join(f"{row}\n" for row in rows))
    rejects = [reject.row for batch in batches_of(Json(path)) for reject in batch.rejects]
    assert rejects == [1, 3, 5, 6]


def test_a_malformed_array_among_objects_is_a_reject(tmp_path):
    rows = ['{"a": {"x": 1, ".y": 5}}', '{"a": [1], "a": [2]}', '{"a": {".y": 9007199254740993}}']
    path = _file(tmp_path, "".join(f"{row}\n" for row in rows))
    (batch,) = batches_of(Json(path))
    assert [reject.row for reject in batch.rejects] == [1]
    assert [row["a"][".y"] for row in batch.rows()] == [5, 9007199254740993]


def test_a_number_too_long_for_python_is_no_row(tmp_path):
    path = _file(tmp_path, f'{{"a": 1, "b": {"9" * 5000}}}\n{{"a": 2}}\n')
    (batch,) = batches_of(Json(path))
    assert [reject.row for reject in batch.rejects] == [0]


def test_bytes_that_are_not_utf8_are_a_reject(tmp_path):
    path = _file(tmp_path, b'{"a": 1, "b": "x"}\n{"a": 2, "b": "\xff"}\n')
    (batch,) = batches_of(Json(path))
    assert [(reject.row, "UTF-8" in reject.message) for reject in batch.rejects] == [(1, True)]


# --- types --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "arrow"),
    [
        (["1", "2"], pa.int64()),
        (["1", "1.5"], pa.float64()),
        (["NaN", "1"], pa.float64()),
        (["9007199254740992", "1.5"], pa.float64()),
        (["9007199254740993"], pa.int64()),
        (["null"], pa.null()),
        (['"2024-01-02T03:04:05"'], pa.string()),
        (['"1"'], pa.string()),
        (["[null, 1]"], pa.list_(pa.int64())),
        (["[]", "[null]", "[1.5, 2]"], pa.list_(pa.float64())),
        (["[[1], []]"], pa.list_(pa.list_(pa.int64()))),
        (['{"x": 1}', '{"y": ["a"]}'], pa.struct({"x": pa.int64(), "y": pa.list_(pa.string())})),
    ],
)
def test_types_follow_from_all_values(tmp_path, values, arrow):
    text = "".join(f'{{"a": {value}}}\n' for value in values)
    _file(tmp_path, text, "one.jsonl")
    for number, value in enumerate(values):
        _file(tmp_path, f'{{"a": {value}}}\n', f"many{number}.jsonl")
    assert Json(tmp_path / "one.jsonl").schema() == pa.schema({"a": arrow})
    assert Json(tmp_path / "one.jsonl", chunk_bytes=16).schema() == pa.schema({"a": arrow})
    assert Json(tmp_path / "many*").schema() == pa.schema({"a": arrow})


@settings(deadline=None)
@given(st.lists(st.sampled_from(["NaN", "Infinity", "-", "0.5", '"', "\\", "é"])).map("".join))
def test_a_key_may_look_like_a_number(tmp_path_factory, key):
    directory = tmp_path_factory.mktemp("in")
    row = {"0.5": 1, "b": {"0.5": 1.5}}
    rows = [*[row] * 40, {"0.5": math.inf, "b": {"0.5": 1.5, key: 2.5}, f"{key} ": key}]
    path = _file(directory, "".join(f"{json.dumps(row)}\n" for row in rows))
    (*_, last) = rows_of(Json(path))
    assert last == rows[-1]


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ("1", '"x"', "column 'a' is text in b.jsonl:2 but an integer in a.jsonl:2"),
        ('{"x": 1}', '{"x": []}', "column 'a.x' is an array in b.jsonl:2 but an integer in a"),
        ("[1]", "[true]", r"column 'a\[\]' is a boolean in b.jsonl:2 but an integer in a.jsonl:2"),
        (
            *("9007199254740993", "1.5"),
            "'a' is a fraction in b.jsonl:2 but an integer beyond 2\\^53 in a.jsonl:2",
        ),
    ],
)
def test_values_of_two_kinds_are_refused(tmp_path, one, other, message):
    _file(tmp_path, f'{{"b": 1}}\n{{"a": {one}}}\n', "a.jsonl")
    _file(tmp_path, f'{{"b": 1}}\n{{"a": {other}}}\n', "b.jsonl")
    with pytest.raises(SchemaConflict, match=message) as caught:
        Json(tmp_path).schema()
    assert str(caught.value).endswith("pass --types a=string to read the text of each value")
    assert Json(tmp_path, types={"a": "string"}).schema().field("a").type == pa.string()
    rows = rows_of(Json(tmp_path, types={"a": "string"}))
    texts = [json.loads(value) if value[0] == '"' else value for value in (one, other)]
    assert [row["a"] for row in rows] == [None, texts[0], None, texts[1]]


@pytest.mark.parametrize(
    ("arrow", "good", "bad"),
    [
        ("int8", {"5": 5, "-128": -128}, ["300", "1.5", '"5"', "true"]),
        ("uint64", {"18446744073709551615": 2**64 - 1}, ["-1", "18446744073709551616"]),
        ("decimal128(5, 2)", {"1.25": "1.25", '"1.5"': "1.50", "3": "3.00"}, ["1.255", "12345"]),
        ("date32[day]", {'"2024-02-29"': "2024-02-29"}, ['"2024-02-30"', "5", '"x"']),
        (
            "timestamp[us]",
            {'"2024-01-02 03:04:05.123456"': "2024-01-02 03:04:05.123456"},
            ['"2024-01-02T03:04:05.1234567"', '"2024-01-02T03:04:05Z"', "5"],
        ),
        (
            "timestamp[us, tz=UTC]",
            {'"2024-01-02T03:04:05+01:00"': "2024-01-02 02:04:05+00:00"},
            ['"2024-01-02T03:04:05"'],
        ),
    ],
)
def test_stated_types(tmp_path, arrow, good, bad):
    values = [*good, "null", *bad]
    path = _file(tmp_path, "".join(f'{{"a": {value}}}\n' for value in values))
    source = Json(path, types={"a": arrow})
    (batch,) = batches_of(source)
    *found, last = batch.data.column(0).to_pylist()
    pairs = zip(found, good.values(), strict=True)
    assert all(one == of or str(one) == of for one, of in pairs)
    assert last is None
    assert [reject.value for reject in batch.rejects] == bad
    first = batch.rejects[0]
    assert first.message.startswith(
        f"column 'a' is {bad[0]} in x.jsonl:{len(good) + 2}, which is not"
    )
    assert {reject.code for reject in batch.rejects} == {"bad-value"}


def test_types_that_json_cannot_hold_are_refused(tmp_path):
    with pytest.raises(UsageError, match="'a' cannot be read from json as map<string, int64>: "):
        Json("x.jsonl", types={"a": pa.map_(pa.string(), pa.int64())})
    with pytest.raises(UsageError, match="'a' cannot be read from json as decimal128"):
        Json("x.jsonl", types={"a": pa.decimal128(5, -2)})


def test_a_key_that_only_a_very_deep_row_has_is_not_lost(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": 2, "b": ' + '{"c":' * 3000 + "1" + "}" * 3001 + "\n")
    with pytest.raises(DataError, match=r"x\.jsonl:2 is nested more than 100 levels deep: correct"):
        Json(path).schema()


def test_nested_types_of_a_schema(tmp_path):
    schema = pa.schema(
        {
            "v": pa.list_(pa.float32(), 2),
            "s": pa.struct({"t": pa.timestamp("s"), "n": pa.int8()}),
            "d": pa.dictionary(pa.int32(), pa.string()),
        }
    )
    texts = [
        '{"v": [1, 2.5], "s": {"t": "2024-01-02T00:00:00", "n": 1}, "d": "x"}',
        *('{"v": [1, 2, 3]}', '{"v": [1e39, 0]}', '{"s": {"n": 300}}', '{"s": {"t": "x"}}', "{}"),
    ]
    source = Json(_file(tmp_path, "".join(f"{text}\n" for text in texts)))
    (unit,) = source.all_units(source.all_scans())
    (batch,) = source.read(unit, schema)
    assert batch.data.schema == schema
    assert [reject.row for reject in batch.rejects] == [1, 2, 3, 4]
    first, last = batch.rows()
    assert first["v"] == [1, 2.5]
    assert str(first["s"]) == "{'t': datetime.datetime(2024, 1, 2, 0, 0), 'n': 1}"
    assert last == {"v": None, "s": None, "d": None}


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.json", '[{"a": 1}, {"a"', "x.json ends inside an array: check that it is complete"),
        ("x.json", '[{"a": 1}] {}', "x.json row 0 is not valid JSON .Extra data"),
        ("x.json", '[{"a": 1}, {"a": 2}}', "x.json row 1 is not valid JSON .Extra data"),
        ("x.json", '[{"a": 1}]]', "x.json closes more than it opens: correct it"),
        ("x.json", '{\n"a": 1', "x.json ends inside an object: check that it is complete"),
        ("x.json", '{"a": 1}'.encode("utf-16"), "x.json looks like UTF-16: JSON has to be UTF-8"),
        ("x.json", '{"a": 1}'.encode("utf-16-le"), "x.json looks like UTF-16"),
        (
            "x.json.gz",
            gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:30],
            "cannot read x.json.gz .*complete",
        ),
    ],
)
def test_torn_and_foreign_files_are_refused(tmp_path, name, data, message):
    path = _file(tmp_path, data, name)
    with pytest.raises(DataError, match=message):
        rows_of(Json(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "the row in x.json row 0 is a number, not an object: correct it, or leave it out"),
        ('[{}, "a,b"]', "the row in x.json row 1 is a string, not an object"),
        ("[{},{},]", "the row in x.json row 2 is not valid JSON"),
        ("[{},,{}]", "the row in x.json row 1 is not valid JSON"),
        ('[{"a\n": 1}]', "the row in x.json row 0 is not valid JSON (Invalid control character"),
        ('{\n"a": 1}{"a": 1}', "the row in x.json row 0 is not valid JSON (Extra data"),
        ('{"a": 1}\n{\n"a": 1}', "the row in x.json:2 is not valid JSON"),
    ],
)
def test_values_that_are_no_rows_are_rejects(tmp_path, text, message):
    faults = _faults(Json(_file(tmp_path, text, "x.json")))
    assert len(faults) >= 1
    assert faults[0].startswith(message)


def test_a_row_with_a_long_line_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "BLOCK_BYTES", 10)
    rows = [{"a": "x" * 1000}, {"a": "y" * 1000}]
    path = _file(tmp_path, "\n".join(map(json.dumps, rows)))
    assert rows_of(Json(path)) == rows
    monkeypatch.setattr(text_module, "MAX_ROW_BYTES", 500)
    with pytest.raises(DataError, match=r"x\.jsonl:1 is longer than 500 bytes: check that"):
        rows_of(Json(path))


def test_lines_of_faults_count_blank_lines_and_earlier_units(tmp_path):
    lines = ['{"a": 1}', "", "  ", '{"a": "x"}'] * 20
    path = _file(tmp_path, "\n".join(lines))
    source = Json(path, types={"a": "int64"}, chunk_bytes=30)
    rejects = [reject for batch in batches_of(source) for reject in batch.rejects]
    assert len(source.all_units(source.all_scans())) > 5
    assert [reject.address for reject in rejects] == [f"x.jsonl:{4 * n + 4}" for n in range(20)]


def test_a_missing_column_is_refused(tmp_path):
    path = _file(tmp_path, '{"a": 1}\n')
    with pytest.raises(UsageError, match="column 'b' of --types is not in the input: the"):
        Json(path, types={"b": "int64"}).schema()


# --- datasets -----------------------------------------------------------------------------------


def test_rejects_end_the_job_with_file_and_line(tmp_path):
    path = _file(tmp_path, '{"id": 1}\n{"id": 9223372036854775808}\n{"id": 2, "id": 3}\n')
    with pytest.raises(DataError) as caught:
        bt.write(path, tmp_path / "out")
    assert "column 'id' is 9223372036854775808 in x.jsonl:2, which is not int64" in str(
        caught.value
    )
    assert "the row in x.jsonl:3 has the key 'id' twice" in str(caught.value)
    manifest = bt.write(path, tmp_path / "out", max_rejects=2)
    assert manifest.examples == 1
