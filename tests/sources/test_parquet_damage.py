"""The Parquet source and files that are damaged, or change under its hands."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_tfrecord.errors import DataError
from beam_tfrecord.sources.parquet import Parquet
from tests.helpers.reading import read_all, units_of
from tests.sources.made_parquet import write_parquet


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    with pytest.raises(DataError, match=r"a\.parquet has two columns named 'x'"):
        Parquet(write_parquet(tmp_path / "a.parquet", table)).schema()


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"id,name\n1,a\n" * 9,
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-60] + b"\xff" * 20 + data[-40:],
        lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1",
        lambda data: data[:-4] + b"PARE",
    ],
    ids=["empty", "text", "cut-end", "half", "footer", "length", "encrypted"],
)
def test_file_that_is_not_whole_is_named(tmp_path, damage):
    path = write_parquet(tmp_path / "trips 1.parquet", {"x": list(range(100))})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError) as caught:
        Parquet(path).all_scans()
    message = str(caught.value)
    assert message.startswith("trips 1.parquet is not a valid parquet file (")
    assert message.endswith("): write the file again, or leave it out")
    assert "\n" not in message


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_damaged_page_is_named_by_its_rows(tmp_path, compression):
    path = write_parquet(
        *(tmp_path / "a.parquet", {"x": list(range(1000)), "y": [str(i) for i in range(1000)]}),
        row_group_size=100,
        use_dictionary=False,
        compression=compression,
        write_page_checksum=True,
    )
    column = pq.ParquetFile(path).metadata.row_group(7).column(1)
    at = column.data_page_offset + column.total_compressed_size // 2
    path.write_bytes(_flip(path.read_bytes(), at))
    source = Parquet(path)
    (unit,) = units_of(source)
    with pytest.raises(DataError, match=r"^cannot read a\.parquet from row 640 on \(.+\): write "):
        list(source.read(unit, source.schema(), batch_rows=64))
    assert Parquet(path, columns=["x"]).schema().names == ["x"]
    assert len(read_all(Parquet(path, columns=["x"]))) == 1000


def test_no_flipped_byte_in_the_pages_goes_unnamed(tmp_path):
    columns = {"x": range(90), "y": [str(i % 17) for i in range(90)], "z": [[i] for i in range(90)]}
    path = write_parquet(tmp_path / "a.parquet", columns, row_group_size=30, compression="none")
    data, expected = path.read_bytes(), read_all(Parquet(path)).num_rows
    footer_bytes = 8 + int.from_bytes(data[-8:-4], "little")
    messages = []
    for at in range(4, len(data) - footer_bytes, 3):
        path.write_bytes(_flip(data, at))
        try:
            assert sum(batch.num_rows for batch in Parquet(path).batches()) == expected
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert all("a.parquet" in message for message in messages)


@pytest.mark.parametrize("column", ["c" * 8, {"c" * 8: 1}], ids=["column", "field of a struct"])
def test_name_that_is_not_utf8_is_told(tmp_path, column):
    path = tmp_path / "a.parquet"
    names = {"a": [column]} if isinstance(column, dict) else {column: [1]}
    pq.write_table(pa.table(names), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"c" * 8, b"cc\xff\xfecccc"))
    with pytest.raises(DataError, match=r"a\.parquet is not a valid parquet file \('utf-8'"):
        list(Parquet(str(path)).batches())
