"""Categories of any bytes: each but the empty text has a number of its own."""

import collections
import warnings

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfrecord as bt
from tests.helpers.lazy import Lazy

tf = Lazy("tensorflow")
operations = Lazy("beam_tfrecord.preprocess.operations")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

BYTES = [bytes([byte]) for byte in range(256)]
TEXTS = [
    *("", " ", " a", "a ", "\ta", "a\x0b", "a\x0c", "a\u0085", "\u2028", "a\u2029b", "\u00a0"),
    *("a\nb", "a\rb", "a\r\nb", "\n", "\r", "\r\n", "a\\nb", "a\\\nb", "a\\\\nb", "\\", "\\n", "a"),
]
# The most frequent of its column, with all that is escaped.
FREQUENT = "one\\\ntwo\r\\nthree\\"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("texts")
    rows = 2 * len(BYTES)
    texts = [TEXTS[row % len(TEXTS)] for row in range(rows)]
    table = pa.table(
        {
            "bytes": BYTES * 2,
            "text": texts,
            "hot": texts,
            "list": [[text] for text in texts],
            "filled": [None if row % 2 else FREQUENT for row in range(rows)],
        }
    )
    pq.write_table(table, directory / "in.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bt.write(
            directory / "in.parquet",
            directory / "out",
            shuffle=False,
            transform=[
                {"op": "vocabulary", "columns": ["bytes", "text", "list"]},
                {"op": "one_hot", "columns": ["hot"]},
                {"op": "impute", "columns": ["filled"], "how": "most_frequent"},
            ],
        )
    return directory / "out"


def column(written, name):
    return bt.load(written).arrow()[name].to_pylist()


def test_every_byte_is_a_category(written):
    numbers = column(written, "bytes")
    assert sorted(numbers[: len(BYTES)]) == list(range(len(BYTES)))
    assert numbers[: len(BYTES)] == numbers[len(BYTES) :]


def test_the_vocabulary_has_a_line_for_each(written):
    file = written / "transform_fn" / "assets" / "text"
    lines = file.read_bytes().decode().removesuffix("\n").split("\n")
    assert len(lines) == len(TEXTS) - 1
    numbers = dict(zip(TEXTS, column(written, "text"), strict=False))
    assert lines[numbers["a\nb"]] == r"a\nb"
    assert lines[numbers["a\\nb"]] == r"a\\nb"
    assert lines[numbers["\r\n"]] == r"\r\n"
    assert lines[numbers[" a"]] == " a"


@pytest.mark.parametrize("name", ["text", "hot", "list"])
def test_the_labels_of_the_schema_are_the_texts_themselves(written, name):
    schema = bt.load(written).schema
    assert sorted(schema[name].labels) == sorted(TEXTS[1:])
    for text, stored in list(zip(TEXTS, column(written, name), strict=False))[1:]:
        (value,) = stored if name == "list" else [stored]
        number = value.index(1) if name == "hot" else value
        assert schema[name].labels[number] == text
    # Not all bytes are text.
    assert schema["bytes"].labels == schema["filled"].labels == ()


def test_the_most_frequent_text_fills_as_it_is(written):
    assert collections.Counter(column(written, "filled")) == {FREQUENT: 2 * len(BYTES)}


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="\\nr\n\r", max_size=9), st.binary(max_size=9))
def test_no_two_texts_are_escaped_alike(text, data):
    for plain in (text.encode(), data):
        (found,) = operations.escaped(tf.constant([plain])).numpy()
        assert b"\n" not in found
        assert b"\r" not in found
        assert operations.unescaped(tf.constant(found)).numpy() == plain
