"""Arrow IPC files and streams: what Feather, polars, pandas and Hugging Face write."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather
import pytest
from hypothesis import given, settings

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.arrow import Arrow
from tests.helpers.effort import examples
from tests.helpers.reading import read_all, units_of
from tests.whole.type_families import FAMILIES

TABLE = pa.table(
    {
        "id": pa.array(range(100)),
        "name": pa.array([None, "a", "bc", "日本"] * 25),
        "tags": pa.array([["x"], [], None, ["y", "z"]] * 25),
    },
    schema=pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("tags", pa.list_(pa.string())),
        ]
    ),
)


def write_arrow(path, table, *, stream=False, rows=10, **options):
    """Write a table in record batches of `rows`."""
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_every_type_of_the_contract_comes_back(family, tmp_path_factory):
    directory = tmp_path_factory.mktemp("arrow")

    @settings(max_examples=examples(12), deadline=None)
    @given(FAMILIES[family])
    def check(column):
        array = column.array
        for stream in (False, True):
            path = write_arrow(directory / "a.arrow", pa.table({"x": array}), stream=stream, rows=2)
            (found,) = read_all(Arrow(path)).combine_chunks().columns[0].chunks or [array[:0]]
            wanted = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            assert found.to_string(window=100) == wanted.to_string(window=100)
        with contextlib.suppress(pa.ArrowNotImplementedError):
            runs = pa.table({"x": pc.run_end_encode(array)})
            (found,) = read_all(Arrow(write_arrow(directory / "a.arrow", runs))).columns[0].chunks
            wanted = pc.run_end_decode(runs.column(0).chunk(0))
            assert found.to_string(window=100) == wanted.to_string(window=100)
            assert found.null_count == array.null_count

    check()


def test_feather_is_read_and_its_first_version_refused(tmp_path):
    pa.feather.write_feather(TABLE, tmp_path / "a.feather", chunksize=30)
    assert read_all(Arrow(tmp_path / "a.feather")).equals(TABLE)
    (tmp_path / "b.feather").write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    with pytest.raises(DataError, match=r"^b\.feather .* \(it begins as a Feather V1 file"):
        read_all(Arrow(tmp_path / "b.feather"))


def _with_dictionaries():
    """Return batches whose dictionaries grow."""
    words = ["a", "b", "c", "d", "e", "f"]
    values = [
        pa.DictionaryArray.from_arrays(pa.array([0, None, n + 1]), pa.array(words[: n + 2]))
        for n in range(5)
    ]
    return [pa.record_batch({"word": of, "n": pa.array([1, 2, 3])}) for of in values]


# The file format has no replaced dictionaries.
@pytest.mark.parametrize(("stream", "deltas"), [(False, True), (True, False), (True, True)])
def test_dictionaries_of_each_unit_are_those_before_it(tmp_path, stream, deltas, monkeypatch):
    batches = _with_dictionaries()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
    with make(tmp_path / "a.arrow", batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    monkeypatch.setattr(Arrow, "unit_bytes", 1)
    source = Arrow(tmp_path / "a.arrow")
    # The dictionaries of a stream are those before each batch, so it is not cut.
    assert len(units_of(source)) == (1 if stream else 5)
    expected = pa.Table.from_batches(batches).column("word").to_pylist()
    assert source.schema().field("word").type == pa.string()
    assert read_all(source).column("word").to_pylist() == expected
    schema = source.schema()
    if not stream:
        for unit, batch in reversed(list(zip(units_of(source), batches, strict=True))):
            (found,) = source.read(unit, schema)
            assert found.data.to_pylist() == batch.to_pylist()


def test_dictionaries_of_views_are_read(tmp_path):
    words = pa.array(["a word of more than twelve letters", "b"], pa.string_view())
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), words)
    path = write_arrow(tmp_path / "a.arrow", pa.table({"x": column}))
    assert read_all(Arrow(path)).column("x").to_pylist() == ["b", None, words[0].as_py()]
    nested = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), column)
    path = write_arrow(tmp_path / "a.arrow", pa.table({"y": nested}))
    with pytest.raises(
        DataError, match=r"^column 'y' of a\.arrow is list<.*which Arrow cannot con"
    ):
        read_all(Arrow(path))


def test_files_of_polars_are_read(tmp_path):
    import polars

    frame = polars.DataFrame({"x": range(1000), "y": ["a", None] * 500})
    frame = frame.with_columns(z=polars.col("y").cast(polars.Categorical))
    for compression in ("uncompressed", "lz4", "zstd"):
        frame.write_ipc(tmp_path / "a.arrow", compression=compression, record_batch_size=300)
        assert read_all(Arrow(tmp_path / "a.arrow")).to_pylist() == frame.to_dicts()
    frame.write_ipc_stream(tmp_path / "a.arrow")
    assert read_all(Arrow(tmp_path / "a.arrow")).to_pylist() == frame.to_dicts()


def test_class_names_in_the_schema_of_a_file_are_kept(tmp_path):
    schema = bt.Schema((bt.Feature("x", pa.int64(), labels=("cat", "dog")),)).to_arrow()
    write_arrow(tmp_path / "a.arrow", pa.table({"x": [0, 1]}, schema=schema))
    assert bt.schema(tmp_path / "a.arrow")["x"].labels == ("cat", "dog")


def test_two_columns_of_one_name_are_refused(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(DataError, match=r"^a\.arrow has two columns named 'x': rename one of them"):
        Arrow(write_arrow(tmp_path / "a.arrow", twice)).schema()


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_text_that_is_not_utf_8_rejects_its_row(tmp_path, stream, nested):
    words = pa.array([b"a", b"\xff", b"b"]).view(pa.string())
    if nested:
        words = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), words)
    table = pa.table({"id": [1, 2, 3], "word": words})
    path = write_arrow(tmp_path / "a.arrow", table, stream=stream)
    manifest = bt.write(path, tmp_path / "out", max_rejects=1)
    assert (manifest.examples, manifest.rejects["rows"]) == (2, 1)
    assert sorted(row["id"] for row in bt.load(tmp_path / "out").rows()) == [1, 3]


def test_a_filter_keeps_the_values_of_nested_lists_of_fixed_size(tmp_path):
    rows = 1000
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(range(6 * rows)), 2)
    lists = pa.FixedSizeListArray.from_arrays(pairs, 3)
    table = pa.table({"id": range(rows), "x": lists})
    pa.feather.write_feather(table, tmp_path / "a.arrow", compression="uncompressed")
    # Batches of 100 rows are slices of the file's record batch.
    read = bt.ReadFromArrow(tmp_path / "a.arrow", filter="id > 250 and id <> 300", batch_rows=100)
    found = {row["id"]: row["x"] for batch in read.batches() for row in batch.rows()}
    values = lists.to_pylist()
    assert found == {row: values[row] for row in range(251, rows) if row != 300}
