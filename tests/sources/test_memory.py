"""Data in memory: what becomes of each kind, its types over all rows, and its identity."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import os
import tempfile
import uuid
import zoneinfo
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, StorageError, TargetExists, UsageError
from beam_tfrecord.features.tensors import TensorType
from beam_tfrecord.sources import memory_tables as rows_module
from beam_tfrecord.sources.memory import Memory, on_disk, spool
from beam_tfrecord.sources.memory_tables import stream_of
from tests.helpers.effort import examples
from tests.helpers.lazy import Lazy
from tests.whole.type_families import FAMILIES
from tests.whole.type_oracle import features_of

pl = Lazy("polars")

UTC = dt.UTC
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
# Number of rows of the first piece of an iterable.
FIRST_PIECE = rows_module.FIRST_ROWS


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Have temporary files in a directory of the test."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def spooled(held, **options):
    """Return the rows as they are in the temporary file."""
    with tempfile.TemporaryDirectory() as directory:
        stream = stream_of(held, **options)
        path, _ = spool(stream.batches, stream.schema, directory)
        assert os.listdir(directory) == [os.path.basename(path)]
        with pa.OSFile(path) as file:
            return pa.ipc.open_file(file).read_all()


def digest_of(held):
    with on_disk(held) as readable:
        return readable.options["digest"]


def column_of(values):
    return spooled([{"x": value} for value in values])["x"]


class Point(NamedTuple):
    a: int
    b: str


@dataclasses.dataclass
class Inner:
    y: float


@dataclasses.dataclass
class Outer:
    a: int
    b: Inner


class Color(enum.Enum):
    RED = 1


class TestRows:
    def test_dicts_named_tuples_and_dataclasses_are_rows(self):
        rows = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
        assert spooled(rows).to_pylist() == rows
        assert spooled(iter(rows)).to_pylist() == rows
        assert spooled([collections.OrderedDict(row) for row in rows]).to_pylist() == rows
        counts = collections.defaultdict(int, a=5)
        assert spooled([counts, {"b": 1}])["b"].to_pylist() == [None, 1]
        assert counts == {"a": 5}
        assert spooled([Point(1, "x")]).to_pylist() == [{"a": 1, "b": "x"}]
        assert spooled([Outer(1, Inner(2.0))]).to_pylist() == [{"a": 1, "b": {"y": 2.0}}]
        inner = [{"a": 1, "b": "x"}, {"y": 2.0}]
        assert column_of(inner).to_pylist() == column_of([Point(1, "x"), Inner(2.0)]).to_pylist()

    def test_columns_of_any_length_of_lists_are_rows_too(self):
        table = spooled({"a": [1, 2, None], "b": pa.array(["x", "y", "z"]), "c": range(3)})
        assert table.to_pydict() == {"a": [1, 2, None], "b": ["x", "y", "z"], "c": [0, 1, 2]}

    def test_a_missing_key_is_null_and_a_late_one_a_column(self):
        rows = [{"a": 1} for _ in range(FIRST_PIECE)]
        rows += [{"b": "x"}, {}]
        table = spooled(rows)
        assert table.schema.names == ["a", "b"]
        assert table["a"].to_pylist() == [1] * FIRST_PIECE + [None, None]
        assert table["b"].to_pylist() == [None] * FIRST_PIECE + ["x", None]

    def test_an_error_of_the_iterable_is_raised_as_it_is(self, tmp_path):
        class BrokenError(OSError):
            pass

        def rows() -> Iterator[dict[str, int]]:
            # An error of the disk, but not of the temporary file.
            yield from ({"a": number} for number in range(100))
            raise BrokenError("mine")

        with pytest.raises(BrokenError, match="mine") as caught:
            bt.write(rows(), tmp_path / "out")
        assert caught.value.__notes__ == ["raised by the input after 100 rows"]
        assert not (tmp_path / "out").exists()
        assert _temporary() == []

    @pytest.mark.parametrize(
        ("held", "message"),
        [
            ([], "no input: give a file"),
            (iter([]), "there is no row: the input is empty, or an iterator that was read before"),
            ([{"a": 1}, "x.csv"], "row 1 of the input is of type str: give every row as a dict"),
            (["x.csv", {"a": 1}], "cannot read an input of type dict, which is not a path"),
            ([1, 2], "row 0 of the input is of type int"),
            ([{1: 2}], "a column is named 1, which is not text"),
            ([{"\ud800": 1}], "is not valid Unicode: rename the column"),
            ([{}, {}], "no row of the input has a column"),
            ({"a": [1, 2], "b": [1]}, "columns must have as many rows.*'a' has 2, 'b' has 1"),
            ({"a": "text"}, "column 'a' is of type str: give a list"),
            *(
                ({"a": np.arange(2), "b": values}, "'b' is no array, though others are")
                for values in (["a\0", "b"], [b"a\0", b"b"], [1, "a"], [True, 2], [2**53 + 1, 0.5])
            ),
            ({"a": np.arange(2), "b": [[1], [1, 2]]}, "'b' is no array, though others are"),
            (pd.Series([1]), "cannot read an input of type Series as a table"),
            (
                {"train": pl.DataFrame({"a": [1]}).to_arrow()},
                "a dict of 1 tables: give one of them",
            ),
        ],
    )
    def test_what_is_no_table_is_refused(self, tmp_path, held, message):
        with pytest.raises(UsageError, match=message):
            bt.write(held, tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_a_generator_of_paths_stays_one(self, tmp_path):
        (tmp_path / "a.csv").write_text("x\n1\n")
        assert bt.schema(path for path in [tmp_path / "a.csv"]).names == ("x",)
        assert bt.schema([tmp_path / "a.csv"]).names == ("x",)


# Values, and the type and the values that they have then.
GO_TOGETHER = [
    ([1, 2.5], pa.float64(), [1.0, 2.5]),
    ([np.int8(1), 300], pa.int64(), [1, 300]),
    ([np.float32(1.5), np.float32(2)], pa.float32(), [1.5, 2.0]),
    ([np.float32(1.5), 0.1], pa.float64(), [1.5, 0.1]),
    ([b"x", bytearray(b"y"), memoryview(b"z")], pa.binary(), [b"x", b"y", b"z"]),
    (
        [decimal.Decimal("1.5"), decimal.Decimal("100.25")],
        pa.decimal128(5, 2),
        [decimal.Decimal("1.50"), decimal.Decimal("100.25")],
    ),
    (
        [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1, tzinfo=BERLIN)],
        pa.timestamp("us", "UTC"),
        [dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2019, 12, 31, 23, tzinfo=UTC)],
    ),
    (
        [dt.datetime(2020, 1, 1), pd.Timestamp("2020-01-01 00:00:00.000000001")],
        pa.timestamp("ns"),
        [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01 00:00:00.000000001")],
    ),
    ([pd.NaT, dt.date(2020, 1, 2)], pa.date32(), [None, dt.date(2020, 1, 2)]),
    ([pd.NA, 1], pa.int64(), [None, 1]),
    ([[1, pd.NA], [None]], pa.list_(pa.int64()), [[1, None], [None]]),
    (
        [[{"a": 1}, Point(1, "x")]],
        pa.list_(pa.struct({"a": pa.int64(), "b": pa.string()})),
        [[{"a": 1, "b": None}, {"a": 1, "b": "x"}]],
    ),
    (
        [{"b": 1}, {"a": "x", "b": 2.5}],
        pa.struct({"b": pa.float64(), "a": pa.string()}),
        [{"b": 1.0, "a": None}, {"b": 2.5, "a": "x"}],
    ),
    ([uuid.UUID(int=5)], pa.uuid(), [uuid.UUID(int=5)]),
    (
        [np.datetime64("2024-01-01T00:00:01"), np.datetime64("2024-01-01T00:00:00.5")],
        pa.timestamp("ms"),
        [dt.datetime(2024, 1, 1, 0, 0, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 500_000)],
    ),
]
APART = [
    ([True, 1], "bool and int64 have no common type"),
    ([2.5, 2**53 + 1], "9007199254740993"),
    (["a", b"b"], "string and binary have no common type"),
    ([dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)], "date32.* and times without a zone"),
    (
        [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC)],
        "times without a zone and times with the zone UTC",
    ),
    ([np.zeros((2, 2)), np.zeros(2)], "tensor<float64>.* and list"),
    ([{"a": 1}, {"a": "x"}], "int64 and string"),
    (["x", float("nan")], "string and double"),
    (
        [np.datetime64("2024-01-01"), np.datetime64("2024-01-01T00:00:01")],
        "date32.* and times without a zone have no common type",
    ),
]
ALONE = [
    ({1, 2}, "a set has no order: give a sorted list"),
    (Color.RED, "Color .* has no type here"),
    ({1: 2}, "the key 1 of a dict is not text"),
    (dt.time(1, tzinfo=UTC), "a time of day with a zone has no type here"),
    (2**63, "9223372036854775808 does not fit 64 bits: convert the column, such as to text"),
    ("\ud800", "surrogates not allowed"),
    (
        decimal.Decimal("NaN"),
        r"Decimal\('NaN'\) has no type here: give None for a missing value, or",
    ),
]


class TestTypes:
    @pytest.mark.parametrize(("values", "arrow", "expected"), GO_TOGETHER)
    def test_the_type_follows_from_all_rows(self, values, arrow, expected):
        for number, value in enumerate(values):
            # The other values come in a later piece, in another order.
            first, rest = [value] * FIRST_PIECE, values[:number] + values[number + 1 :]
            found = column_of(first + rest)
            assert (
                {field.name for field in found.type} == {field.name for field in arrow}
                if (pa.types.is_struct(arrow))
                else found.type == arrow
            )
            want = [expected[number]] * FIRST_PIECE + expected[:number] + expected[number + 1 :]
            assert found.to_pylist() == want

    @pytest.mark.parametrize(("values", "message"), APART)
    @pytest.mark.parametrize("between", [0, FIRST_PIECE])
    def test_values_without_a_common_type_are_refused_with_their_row(
        self, values, message, between
    ):
        one, other = values
        with pytest.raises(DataError, match=f"^column 'x' in row [\\d,]+: .*{message}") as caught:
            column_of([one] * (between + 1) + [other])
        if "9007" not in message:
            assert f"row {between + 1}:" in str(caught.value)

    @pytest.mark.parametrize(("value", "message"), ALONE)
    def test_values_without_a_type_are_refused_with_their_row(self, value, message):
        with pytest.raises(DataError, match=f"^column 'x' in row 100: .*{message}"):
            column_of([None] * 100 + [value])

    def test_an_integer_that_no_float_equals_is_refused_from_another_piece(self):
        with pytest.raises(DataError, match=r"row 3: 9007199254740993 is not exactly a double"):
            column_of([1, 2, 3, 2**53 + 1] + [4] * FIRST_PIECE * 9 + [0.5])

    def test_nan_is_no_null(self):
        assert str(column_of([float("nan"), None]).to_pylist()) == "[nan, None]"

    def test_objects_in_arrays_are_their_values_and_numbers_beside_keep_their_dtype(self, tmp_path):
        columns = {
            "name": np.array(["a", None, "b"], object),
            "code": np.array([b"x", b"y", None], object),
            "count": np.array([3, None, 1], object),
            "id": np.arange(3, dtype=np.uint8),
        }
        bt.write(columns, tmp_path / "out", shuffle=False)
        found = bt.load(tmp_path / "out").arrow()
        assert found.to_pylist() == pa.Table.from_pandas(pd.DataFrame(columns)).to_pylist()
        assert found.schema.field("id").type == pa.uint8()
        vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
        bt.write(columns | {"vector": vectors}, tmp_path / "vectors", shuffle=False)
        stored = bt.load(tmp_path / "vectors", columns=["vector"]).numpy()
        assert (stored["vector"] == vectors).all()

    def test_arrays_of_several_axes_are_tensors(self):
        values = [np.ones((2, 3), "f4")] * FIRST_PIECE + [None, np.zeros((4, 3), "f4")]
        found = column_of(values)
        assert found.type == TensorType("f4", (None, 3))
        assert found[FIRST_PIECE].as_py() is None
        assert np.array_equal(found[0].as_py(), values[0])
        assert np.array_equal(found[-1].as_py(), values[-1])


class TestPandas:
    def test_each_dtype_has_the_values_that_pandas_shows(self):
        frame = pd.DataFrame(
            {
                "float": [1.5, np.nan],
                "text": ["x", None],
                "time": pd.to_datetime(["2020-01-01", None]),
                "zoned": pd.to_datetime(["2020-01-01", None]).tz_localize("Europe/Berlin"),
                "class": pd.Categorical(["a", None]),
                "int": pd.array([1, None], dtype="Int64"),
                "bool": pd.array([True, None], dtype="boolean"),
                "arrow": pd.array([1, None], dtype=pd.ArrowDtype(pa.int8())),
                "half": np.array([1, 2], np.float16),
            }
        )
        table = spooled(frame)
        assert [table[name].null_count for name in table.schema.names] == [1] * 8 + [0]
        assert table["class"].to_pylist() == ["a", None]
        assert table.schema.field("zoned").type.tz == "Europe/Berlin"
        assert table.schema.field("arrow").type == pa.int8()
        assert table.schema.metadata is None

    @pytest.mark.parametrize(
        ("values", "shown"),
        [
            (["x", np.nan], "['x', None]"),
            (["x", pd.NA, None, pd.NaT], "['x', None, None, None]"),
            ([1.5, np.nan, None], "[1.5, None, None]"),
            ([True, np.nan], "[True, None]"),
            ([decimal.Decimal(1), np.nan], "[Decimal('1'), None]"),
            ([[1, 2], np.nan], "[[1, 2], None]"),
        ],
    )
    def test_objects_are_what_their_values_are(self, values, shown):
        frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
        assert str(spooled(frame)["x"].to_pylist()) == shown

    @given(st.lists(st.none() | st.floats(width=32, allow_nan=False), min_size=1), st.data())
    @settings(max_examples=examples(40), deadline=None)
    @pytest.mark.filterwarnings("ignore:NaN")
    def test_nan_is_missing_unless_it_is_a_value(self, values, data):
        dtype = data.draw(st.sampled_from([np.float32, np.float64, object]))
        full = [np.nan if value is None else value for value in values]
        frame = pd.DataFrame({"x": pd.Series(full, dtype=dtype), "text": "t"})
        table = spooled(frame)
        assert table["x"].to_pylist() == values
        kept = spooled(frame, nan="value")["x"]
        assert kept.null_count == 0
        assert np.array_equal(kept.to_numpy(), np.array(full, float), equal_nan=True)

    def test_what_becomes_of_nan_is_said_and_chosen(self, tmp_path, caplog):
        frame = pd.DataFrame({"x": [1.5, np.nan], "y": [0.5, 1.5]})
        seen = bt.write(frame, tmp_path / "null").schema["x"].observed
        assert (seen.missing, seen.nan) == (1, 0)
        (said,) = caplog.messages
        assert said == "NaN is a missing value, in 'x': nan='value' keeps it"
        bt.schema(frame, nan="value")
        assert len(caplog.messages) == 1
        with pytest.raises(UsageError, match="nan='keep' does not exist: choose 'null' or"):
            bt.write(frame, tmp_path / "other", nan="keep")

    def test_names_make_an_index_a_column(self):
        frame = pd.DataFrame({"a": [1, 2, 3]})
        assert spooled(frame).schema.names == ["a"]
        assert spooled(frame[frame.a > 1]).to_pydict() == {"a": [2, 3]}
        named = frame.set_index(pd.Index(["x", "y", "z"], name="id"))
        assert spooled(named).to_pydict() == {"a": [1, 2, 3], "id": ["x", "y", "z"]}
        grouped = pd.DataFrame({"a": [1, 1], "b": [2, 3], "c": [4, 5]}).groupby(["a", "b"]).sum()
        assert spooled(grouped).to_pydict() == {"c": [4, 5], "a": [1, 1], "b": [2, 3]}

    @pytest.mark.parametrize(
        ("frame", "message"),
        [
            (pd.DataFrame({"a": [1]}, index=["x"]), "the index of the DataFrame has no name"),
            (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are named 'a'"),
            (
                pd.DataFrame({"a": [1]}, pd.MultiIndex.from_tuples([(1, 2)], names=["b", "b"])),
                "two columns are named 'b'",
            ),
            (pd.DataFrame({"a": [1]}).rename_axis(5), "a column is named 5, which is not text"),
            (
                pd.DataFrame({"p": pd.period_range("2020-01", periods=2, freq="M")}),
                r"column 'p' is of dtype period\[M\], which has no type here",
            ),
            (pd.DataFrame({"c": [1j]}), "column 'c' is of dtype complex128"),
        ],
    )
    def test_what_has_no_type_or_name_is_refused(self, frame, message):
        with pytest.raises(UsageError, match=message):
            spooled(frame)

    def test_nan_of_a_decimal_is_refused_as_in_rows(self):
        frame = pd.DataFrame({"x": [decimal.Decimal("1.5"), decimal.Decimal("NaN")]})
        with pytest.raises(DataError, match=r"^column 'x' in row 1: Decimal\('NaN'\) has no type"):
            spooled(frame)
        frame = pd.DataFrame({"x": [decimal.Decimal("1.5"), float("nan"), np.float32("nan")]})
        assert spooled(frame)["x"].to_pylist() == [decimal.Decimal("1.5"), None, None]


class TestTables:
    def test_polars_columns_of_new_types_are_read(self):
        frame = pl.DataFrame(
            {
                "text": ["x", None, "long enough for a buffer"],
                "class": pl.Series(["u", "v", "u"], dtype=pl.Categorical),
                "enum": pl.Series(["u", "v", None], dtype=pl.Enum(["u", "v"])),
                "list": [["a"], [], None],
                "array": pl.Series([[1, 2], [3, 4], [5, 6]], dtype=pl.Array(pl.Int64, 2)),
                "struct": [{"a": 1, "b": "x"}] * 3,
                "classes": pl.Series([["x", "y"], None, []], dtype=pl.List(pl.Categorical)),
            }
        )
        expected = frame.to_dicts()
        for held in (frame, frame.lazy(), frame.to_arrow().to_reader()):
            assert spooled(held).to_pylist() == expected

    @pytest.mark.slow
    def test_whatever_exports_arrow_is_a_table(self):
        import duckdb

        relation = duckdb.sql("SELECT i AS a, 'x' || i AS b FROM range(3) t(i)")
        assert spooled(relation).to_pydict() == {"a": [0, 1, 2], "b": ["x0", "x1", "x2"]}

    def test_what_arrow_cannot_decode_is_refused(self):
        views = pa.array(["x"], pa.string_view())
        nested = pa.DictionaryArray.from_arrays(pa.array([0]), views)
        with pytest.raises(DataError, match=r"column 'a' of the input is list<.*cast it before"):
            spooled(pa.table({"a": pa.ListArray.from_arrays(pa.array([0, 1]), nested)}))
        words = pa.array([[("k", "v")], None], pa.map_(pa.string_view(), pa.string_view()))
        assert spooled(pa.table({"a": words}))["a"].to_pylist() == [[("k", "v")], None]

    def test_null_lists_of_items_that_are_never_null(self):
        arrow = pa.list_(pa.field("element", pa.int8(), nullable=False), 1)
        assert spooled(pa.table({"a": pa.array([[1], None], arrow)}))["a"].to_pylist() == [
            [1],
            None,
        ]

    def test_tables_of_arrow(self):
        table = pa.table({"a": [1, 2], "b": pa.array(["x", "x"]).dictionary_encode()})
        assert spooled(table).to_pydict() == {"a": [1, 2], "b": ["x", "x"]}
        assert spooled(table.to_batches()[0]).to_pydict() == {"a": [1, 2], "b": ["x", "x"]}
        assert spooled(table.slice(1)).to_pydict() == {"a": [2], "b": ["x"]}
        reader = table.to_reader()
        assert spooled(reader).num_rows == 2
        with pytest.raises(UsageError, match="there is no row: the input is empty, or an iterator"):
            spooled(reader)
        doubled = pa.table([[1], [2]], names=["a", "a"])
        with pytest.raises(UsageError, match="two columns are named 'a'"):
            spooled(doubled)

    def test_an_error_of_a_reader_has_the_number_of_rows(self, tmp_path):
        def batches():
            for _ in range(2):
                yield pa.RecordBatch.from_pydict({"a": [1, 2, 3]})
            raise RuntimeError("mine")

        reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())
        with pytest.raises(Exception, match="mine") as caught:
            bt.write(reader, tmp_path / "out")
        assert caught.value.__notes__ == ["raised by the input after 6 rows"]
        assert not (tmp_path / "out").exists()


def in_chunks(table, draw):
    """Return a table with random chunks, some of them empty, and garbage below its nulls."""
    pieces, start = [table.slice(0, 0)], 0
    while start < table.num_rows:
        length = draw.choice((1, 3, 50, 700))
        pieces.append(table.slice(start, length))
        start += length
    return pa.concat_tables(pieces)


def _features(values, store):
    """Return what the contract of types says of each value; as text, in which NaN equals NaN."""
    return [str(features_of(value, values.type, "x", store)) for value in values]


class TestIdentity:
    @settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.sampled_from(sorted(FAMILIES)).flatmap(lambda name: FAMILIES[name]),
        st.randoms(use_true_random=False),
    )
    def test_chunks_of_any_type_change_nothing(self, column, draw):
        array = pa.concat_arrays([column.array] * draw.choice((1, 20)))
        table = pa.table({"id": range(len(array)), "x": array})
        chunked = in_chunks(table, draw)
        found = spooled(chunked)
        assert _features(found["x"], column.store) == _features(table["x"], column.store)
        found.validate(full=True)
        assert digest_of(chunked) == digest_of(table) == digest_of(chunked.to_reader())

    def test_bytes_below_nulls_do_not_count(self):
        validity = pa.py_buffer(b"\x05")
        one, other = (
            pa.Array.from_buffers(pa.int64(), 3, [validity, pa.py_buffer(np.array(values))])
            for values in ([1, 0, 3], [1, 99, 3])
        )
        assert digest_of(pa.table({"x": one})) == digest_of(pa.table({"x": other}))

    def test_metadata_and_flags_do_not_count(self):
        table = pa.table({"a": [1, 2]})
        field = pa.field("a", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"})
        other = pa.table([[1, 2]], schema=pa.schema([field], metadata={"pandas": "{}"}))
        assert digest_of(other) == digest_of(table) == digest_of(pd.DataFrame({"a": [1, 2]}))

    def test_the_same_rows_are_nothing_to_do(self, tmp_path):
        frame = pd.DataFrame({"a": range(1000), "b": np.linspace(0, 1, 1000)})
        manifest = bt.write(frame, tmp_path / "out", shards=2)
        shard = tmp_path / "out" / "data-00000-of-00002.tfrecord"
        written = shard.stat()
        again = bt.write(
            pa.concat_tables([pa.table(frame[:7]), pa.table(frame[7:])]), tmp_path / "out", shards=2
        )
        assert (again.fingerprint, shard.stat()) == (manifest.fingerprint, written)
        with pytest.raises(TargetExists, match="different: input edited: data in memory"):
            bt.write(frame.assign(a=frame.a + 1), tmp_path / "out", shards=2)
        assert shard.stat() == written


class TestUse:
    def test_a_stopped_job_goes_on(self, tmp_path, monkeypatch):
        table = pa.table({"a": range(20_000)})
        out, read, seen = tmp_path / "out", Memory.read, []

        def counting(self, unit, *arguments, **options):
            seen.append(unit.name)
            return read(self, unit, *arguments, **options)

        monkeypatch.setattr(Memory, "read", counting)
        with monkeypatch.context() as patch:
            patch.setattr("beam_tfrecord.publish.last_step.publish_dataset", _interrupt)
            with pytest.raises(KeyboardInterrupt, match="interrupted"):
                bt.write(table, out, shards=2)
        assert seen
        seen.clear()
        assert _temporary() == []
        # Other chunks, in another file, are the same rows.
        bt.write(pa.concat_tables([table[:5], table[5:]]), out, shards=2)
        assert seen == []
        assert sorted(bt.load(out).numpy()["a"]) == list(range(20_000))
        assert _temporary() == []

    def test_schema_plan_and_extract(self, tmp_path):
        rows = [{"a": 1, "b": "x"}]
        assert bt.schema(rows).names == ("a", "b")
        plan = bt.plan(rows, tmp_path / "out")
        assert (plan["input"]["kind"], plan["input"]["rows"]) == ("memory", 1)
        bt.extract(rows, tmp_path / "stage")
        assert list(bt.load(tmp_path / "stage").rows()) == rows

    def test_columns_and_map(self, tmp_path):
        frame = pl.DataFrame({"a": [1, 2], "b": ["x", "y"]})
        bt.write(frame, tmp_path / "out", columns=["b"], shuffle=False)
        assert list(bt.load(tmp_path / "out").rows()) == [{"b": "x"}, {"b": "y"}]
        bt.write(frame, tmp_path / "map", map=lambda row: {"c": row["a"] * 2}, shuffle=False)
        assert list(bt.load(tmp_path / "map").rows()) == [{"c": 2}, {"c": 4}]
        with pytest.raises(UsageError, match="column 'z' is not in the input"):
            bt.write(frame, tmp_path / "other", columns=["z"])

    def test_rejects_have_an_address(self, tmp_path):
        table = pa.table({"a": pa.array([1, 2**64 - 1], pa.uint64())})
        with pytest.raises(DataError, match="data in memory row 1"):
            bt.write(table, tmp_path / "out")

    def test_a_pipeline_reads_data_in_memory(self, tmp_path):
        (tmp_path / "mine").mkdir()
        reader = bt.ReadFromArrow(pd.DataFrame({"a": range(10)}), temp_dir=str(tmp_path / "mine"))
        (directory,) = (tmp_path / "mine").iterdir()
        assert os.stat(directory).st_mode & 0o077 == 0
        with bt.pipeline() as p:
            p | reader | bt.WriteToTFRecord(tmp_path / "out")
        assert sorted(bt.load(tmp_path / "out").numpy()["a"]) == list(range(10))
        (batch,) = bt.ReadFromArrow({"x": np.zeros((2, 3, 4))}, columns=["x"]).batches()
        assert batch.data["x"].type == TensorType("f8", (3, 4))

    def test_a_full_disk_is_one_line(self, tmp_path, monkeypatch):
        if not os.path.exists("/dev/full"):
            pytest.skip("there is no /dev/full")
        table = pa.table({"a": range(100_000)})
        monkeypatch.setattr("beam_tfrecord.sources.memory.FILE_NAME", "/dev/full")
        with pytest.raises(StorageError, match=r"cannot write the rows in memory.*set TMPDIR"):
            bt.write(table, tmp_path / "out")

    def test_workers_elsewhere_are_refused(self):
        from beam_tfrecord.jobs.preflight import check_reach

        with on_disk([{"a": 1}]) as readable, pytest.raises(UsageError, match="data in memory"):
            check_reach("dataflow", readable.source_of(), "gs://bucket/out")


def _temporary():
    """Return the temporary directories of data in memory."""
    return [name for name in os.listdir(tempfile.gettempdir()) if "beam_tfrecord-rows" in name]


def _interrupt(*args, **keywords):
    raise KeyboardInterrupt


@pytest.mark.slow
class TestDatasets:
    @pytest.fixture
    def datasets(self, monkeypatch):
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        return pytest.importorskip("datasets")

    def test_rows_come_in_the_order_shown_and_without_format(self, datasets):
        held = datasets.Dataset.from_dict({"a": list(range(10)), "b": [f"x{n}" for n in range(10)]})
        shuffled = held.shuffle(seed=1).select(range(5))
        expected = [dict(row) for row in shuffled]
        assert spooled(shuffled).to_pylist() == expected
        assert spooled(shuffled.with_format("numpy")).to_pylist() == expected
        assert spooled(shuffled.to_iterable_dataset()).to_pylist() == expected

    def test_pictures_are_their_bytes_and_class_names_are_labels(self, datasets, tmp_path):
        path = tmp_path / "x.png"
        Image.new("RGB", (3, 2)).save(path)
        features = datasets.Features(
            {
                "image": datasets.Image(),
                "label": datasets.ClassLabel(names=["cat", "dog"]),
                "grid": datasets.Array2D((2, 2), "float32"),
            }
        )
        columns = {
            "image": [str(path), {"bytes": path.read_bytes(), "path": None}, None],
            "label": ["dog", "cat", "dog"],
            "grid": np.zeros((3, 2, 2)).tolist(),
        }
        held = datasets.Dataset.from_dict(columns, features=features)
        for one in (held, held.to_iterable_dataset()):
            table = spooled(one)
            assert table["image"].to_pylist() == [path.read_bytes(), path.read_bytes(), None]
            assert table["label"].to_pylist() == [1, 0, 1]
            assert table["grid"][0].as_py() == [[0, 0], [0, 0]]
            bt.write(one, tmp_path / type(one).__name__)
            schema = bt.load(tmp_path / type(one).__name__).schema
            assert schema["label"].labels == ("cat", "dog")
