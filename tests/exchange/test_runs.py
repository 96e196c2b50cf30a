from pathlib import Path

import pytest

from beam_tfrecord.errors import DataError
from beam_tfrecord.job_state.run_files import read_index
from tests.exchange.making import write_entries

ENTRIES = [
    ("a", 5, b"xx"),
    ("a", 6, b"y"),
    ("a", 300, b""),
    ("b", 5, b"zzz"),
    ("b", 2**64 - 1, b"w"),
]


def changed(good):
    for position in range(128, len(good)):  # after one byte of padding
        for change in (0x01, 0x0F, 0x10, 0x1D, 0x80, 0xFF):
            bad = bytearray(good)
            bad[position] ^= change
            yield bytes(bad)
    for number in (b"-2", b"99", b"2.", b"1e", b'""', b"[]", b"{}"):
        yield good.replace(b'"arrays": 72', b'"arrays": ' + number)
    for size in range(len(good)):
        yield good[:size]


def test_every_damage_of_the_footer_and_every_cut_is_noticed(tmp_path):
    path = Path(write_entries(tmp_path, ENTRIES, ["a", "b"], shift=8, name="run").path)
    assert read_index(str(path)).slice("b", 256, 2**64 - 1) == (102, 127)
    for bad in changed(path.read_bytes()):
        path.write_bytes(bad)
        with pytest.raises(DataError, match="is not a complete run"):
            read_index(str(path))
