"""Cases of compression alone: one stream of records through our codec and zlib, on one core."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from work import Bench, Measured, Work, bytes_below

ZLIB_LEVEL = 6
GZIP_CONTAINER = 31
PIECE_BYTES = 4 * 2**20


def _record_stream(bench: Bench) -> Path:
    """Write the records of the first table, uncompressed and in source order, as one file."""
    import beam_tfrecord as bt

    first = bench.inputs.parquet[0]
    bt.write(first, f"{bench.scratch}/", shuffle=False, compression="none", shards=1)
    (stream,) = bench.scratch.glob("*.tfrecord")
    return stream


def _compress(
    bench: Bench, *, compress: Callable[[bytes], Iterable[bytes]], flush: Callable[[], bytes]
) -> Measured:
    stream = _record_stream(bench)

    def run() -> Work:
        with stream.open("rb") as source, (bench.out / "stream.gz").open("wb") as target:
            while piece := source.read(PIECE_BYTES):
                target.writelines(compress(piece))
            target.write(flush())
        return Work(rows=bench.inputs.table_rows, output_bytes=bytes_below(bench.out))

    return run


def gzip_stream(bench: Bench) -> Measured:
    """The record stream of the first table through our codec as it comes."""
    from beam_tfrecord.records.tfrecord import GzipCompressor

    codec = GzipCompressor()
    return _compress(bench, compress=codec.compress, flush=codec.flush)


def zlib_level_6(bench: Bench) -> Measured:
    """The same stream through zlib at its default level."""
    codec = zlib.compressobj(ZLIB_LEVEL, zlib.DEFLATED, GZIP_CONTAINER)
    return _compress(bench, compress=lambda piece: (codec.compress(piece),), flush=codec.flush)
