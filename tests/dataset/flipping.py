"""Flipping single bits of a dataset, by the class of the byte they are in.

The classes are found by walking the files as their formats say, not by the package's readers.
"""

import contextlib
import gzip

_GZIP_HEADER, _GZIP_TRAILER = 10, 8


def classes_of(dataset):
    """Return the bytes of a dataset by class; every byte of every file is in one."""
    found = {}

    def add(name, path, start, stop):
        if stop > start:
            found.setdefault(name, []).append((path, start, stop))

    for path in sorted(path for path in dataset.rglob("*") if path.is_file()):
        size = path.stat().st_size
        if path.suffix == ".tfrecord":
            for name, start, stop in _record_parts(path.read_bytes()):
                add(name, path, start, stop)
        elif path.suffix == ".gz":
            gzip.decompress(path.read_bytes())
            add("gzip header", path, 0, _GZIP_HEADER)
            add("gzip stream", path, _GZIP_HEADER, size - _GZIP_TRAILER)
            add("gzip trailer", path, size - _GZIP_TRAILER, size)
        elif path.parent.name == "_index":
            add("index", path, 0, size)
        else:
            add("index" if path.parent.name == "_index" else path.name, path, 0, size)
    return found


def _record_parts(data):
    at = 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at : at + 8], "little")
        yield "record length", at, at + 8
        yield "length checksum", at + 8, at + 12
        yield "payload", at + 12, end
        yield "payload checksum", end, end + 4
        at = end + 4


@contextlib.contextmanager
def flipped(path, position, bit):
    """Flip one bit of a file, and back again."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)
    try:
        yield
    finally:
        data[position] ^= 1 << bit
        path.write_bytes(data)
