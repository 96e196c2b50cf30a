"""The same rows as a file of each format that is read from remote filesystems."""

import pyarrow as pa

from beam_tfrecord.testing import some_rows
from tests.helpers.formats import COMPRESSIONS, npy_file, npz_file, tar_samples
from tests.sources.behaviour import CASES

ROWS = 200
SUFFIXES = (
    *(".csv", ".csv.gz", ".jsonl", ".jsonl.bz2", ".jsonl.xz", ".parquet", ".arrow", ".arrows"),
    *(".orc", ".avro", ".xlsx", ".tar", ".tfrecord", ".tfrecord.gz", ".npy", ".npz"),
)
_CASES = {case.suffix: case for kind, case in CASES.items() if kind != "images"}


def made(suffix, directory):
    """Return the bytes of a file; `directory` gets a file, which is there only for the time."""
    if suffix == ".tar":
        numbers = range(ROWS)
        texts = {"txt": [f"é{row}" for row in numbers], "cls": [row % 7 for row in numbers]}
        return tar_samples(pa.table(texts))
    if suffix in (".npy", ".npz"):
        table = pa.table({"id": range(ROWS), "half": [row / 2 for row in range(ROWS)]})
        return npy_file(table["half"].to_numpy()) if suffix == ".npy" else npz_file(table)
    _, form, *compression = suffix.split(".")
    path = directory / f"made.{form}"
    _CASES[path.suffix].write(path, some_rows(ROWS))
    data = path.read_bytes()
    path.unlink()
    return COMPRESSIONS[f".{compression[0]}"](data) if compression else data
