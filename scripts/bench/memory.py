"""Measures the peak memory of a shuffled write at several sizes of one input file of each kind.

`memory.py --rows 1000000 20000000 --kinds json,arrow`. The memory is flat if the peak does not grow
with the rows. Other work on the machine does not change the figures, only the seconds.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from measure import SAMPLE_SECONDS
from other_files import write_batches
from processes import session_rss
from saving import describe_machine, save
from tables import make_table

_BATCH_ROWS = 100_000


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, _BATCH_ROWS):
        table = make_table(min(_BATCH_ROWS, rows - start), seed=start)
        yield table.combine_chunks().to_batches()[0]


def _json_lines(path: Path, rows: int) -> None:
    with path.open("wb") as file:
        for batch in _batches(rows):
            fields = []
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                text = column if pa.types.is_string(column.type) else column.cast(pa.string())
                quote = '"' if pa.types.is_string(column.type) else ""
                fields.append(pc.binary_join_element_wise(f'"{name}": {quote}', text, quote, ""))
            lines = pc.binary_join_element_wise(
                "{", pc.binary_join_element_wise(*fields, ", "), "}", ""
            )
            file.write("\n".join(lines.to_pylist()).encode() + b"\n")


def _tar(path: Path, rows: int) -> None:
    with tarfile.open(path, "w") as file:
        for row in range(rows):
            member = tarfile.TarInfo(f"{row:09}.txt")
            data = f"the text of sample {row}".encode()
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))


def _tfrecord(path: Path, rows: int) -> None:
    import beam_tfrecord as bt

    schema = make_table(1, seed=0).schema
    bt.write(pa.RecordBatchReader.from_batches(schema, _batches(rows)), path, shards=1)


def _typed(kind: str) -> Callable[[Path, int], None]:
    return lambda path, rows: write_batches(
        kind, _batches(rows), make_table(1, seed=0).schema, str(path)
    )


MAKERS: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "json": ("rows.jsonl", _json_lines),
    "arrow": ("rows.arrow", _typed("arrow")),
    "orc": ("rows.orc", _typed("orc")),
    "avro": ("rows.avro", _typed("avro")),
    "tar": ("rows.tar", _tar),
    "tfrecord": ("dataset", _tfrecord),
}


def peak_of(path: Path, out: Path, work: Path) -> tuple[int, float]:
    """Return the highest resident bytes of a write and all its processes, and its seconds."""
    command = [sys.executable, "-m", "beam_tfrecord", "write", str(path), str(out), "--quiet"]
    start = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True, cwd=work)
    peak = 0
    while process.poll() is None:
        peak = max(peak, session_rss(process.pid))
        time.sleep(SAMPLE_SECONDS)
    if process.returncode:
        raise SystemExit(f"memory: the write of {path.name} failed")
    return peak, time.perf_counter() - start


def _measure(kind: str, rows: int, work: Path) -> dict[str, float]:
    name, _ = MAKERS[kind]
    with tempfile.TemporaryDirectory(dir=work) as folder:
        path = Path(folder, name)
        # In a process of its own, whose memory does not count.
        subprocess.run([sys.executable, __file__, "--make", kind, str(rows), str(path)], check=True)
        peak, seconds = peak_of(path, Path(folder, "out"), work)
    return {"peak_mib": round(peak / 2**20), "seconds": round(seconds, 1)}


def main() -> None:
    """Measure each kind at each size, or make one file in this process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 20_000_000])
    parser.add_argument("--kinds", default=",".join(MAKERS), help="names with commas between")
    parser.add_argument("--work-dir", default="/var/tmp", help="disk for the files")
    parser.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        kind, rows, path = options.make
        MAKERS[kind][1](Path(path), int(rows))
        return
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-memory-", dir=options.work_dir) as work:
        found = {}
        for kind in options.kinds.split(","):
            found[kind] = {str(rows): _measure(kind, rows, Path(work)) for rows in options.rows}
            print(kind, json.dumps(found[kind]), flush=True)
        machine = describe_machine(Path(work), None)
    save("memory", {"machine": machine, "kinds": found})


if __name__ == "__main__":
    main()
