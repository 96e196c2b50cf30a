"""Makes broken records for the fuzzer of the readers: `broken_bytes.py COUNT SEED [DIRECTORY]`.

They go to the output, each behind its size in two bytes, or to files of a directory. The same seed
makes the same ones. Needs nothing but Python.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

# Payloads that are canonical: nothing, one number, all three kinds, empty lists and no kind, -1.
CANONICAL = (
    b"\x0a\x00",
    b"\x0a\x0c\x0a\x0a\x0a\x01i\x12\x05\x1a\x03\x0a\x01\x05",
    b"\x0a\x33\x0a\x11\x0a\x01a\x12\x0c\x12\x0a\x0a\x08\x00\x00\xc0\x3f\x00\x00\x80\xbf"
    b"\x0a\x0e\x0a\x01i\x12\x09\x1a\x07\x0a\x05\x01\xac\x02\x80\x01"
    b"\x0a\x0e\x0a\x01s\x12\x09\x0a\x07\x0a\x02\xc3\xa9\x0a\x01z",
    b"\x0a\x1a\x0a\x07\x0a\x01a\x12\x02\x12\x00\x0a\x07\x0a\x01i\x12\x02\x1a\x00"
    b"\x0a\x06\x0a\x02s!\x12\x00",
    b"\x0a\x15\x0a\x13\x0a\x01i\x12\x0e\x1a\x0c\x0a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
)
# Not canonical: out of order, twice, unpacked, a size in two bytes, packed in no bytes, a group.
OTHERS = (
    b"\x0a\x18\x0a\x0a\x0a\x01s\x12\x05\x0a\x03\x0a\x01x\x0a\x0a\x0a\x01i\x12\x05\x1a\x03\x0a\x01\x07",
    b"\x0a\x18\x0a\x0a\x0a\x01i\x12\x05\x1a\x03\x0a\x01\x05\x0a\x0a\x0a\x01i\x12\x05\x1a\x03\x0a\x01\x06",
    b"\x0a\x0d\x0a\x0b\x0a\x01i\x12\x06\x1a\x04\x08\x01\x08\x02",
    b"\x0a\x8d\x00\x0a\x0b\x0a\x01i\x12\x85\x00\x1a\x03\x0a\x01\x05",
    b"\x0a\x0b\x0a\x09\x0a\x01i\x12\x04\x1a\x02\x0a\x00",
    b"\x3b\x08\x01\x3c\x0a\x00",
)
PAYLOADS = CANONICAL + OTHERS
# Bytes that mean something in an Example, or at the edge of a varint.
TELLING = bytes([0, 1, 2, 4, 8, 10, 11, 12, 13, 18, 26, 127, 128, 255]) + b"is"


def mutated(data: bytes, draw: random.Random, mutations: int, telling: bytes = TELLING) -> bytes:
    """Return the data with bits flipped, and bytes changed, put in, or taken out."""
    out = bytearray(data)
    for _ in range(mutations):
        at = draw.randrange(len(out) + 1)
        how = draw.randrange(5)
        if how == 0 and at < len(out):
            out[at] ^= 1 << draw.randrange(8)
        elif how == 1:
            out.insert(at, draw.choice(telling))
        elif how == 2:
            del out[at : at + draw.randint(1, 30)]
        elif how == 3:
            del out[at : at + 1]
        elif at < len(out):
            out[at] = draw.choice(telling)
    return bytes(out)


def framed(payload: bytes) -> bytes:
    """Return a TFRecord."""
    size = len(payload).to_bytes(8, "little")
    return size + _masked_crc(size) + payload + _masked_crc(payload)


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked.to_bytes(4, "little")


def inputs(count: int, seed: int) -> Iterator[bytes]:
    """Yield payloads, records, or records with the sort keys of a run, one behind the other."""
    draw = random.Random(seed)
    records = [framed(payload) for payload in PAYLOADS]
    for _ in range(count):
        kind = draw.choice(("payloads", "payloads", "records", "run"))
        choice, most = (PAYLOADS, 2) if kind == "payloads" else (records, 4)
        parts = draw.choices(choice, k=draw.randint(1, most))
        if kind == "run":
            parts = [draw.randrange(1000).to_bytes(8, "little") + part for part in parts]
        yield mutated(b"".join(parts), draw, draw.randrange(4))


def stream(count: int, seed: int) -> Iterator[bytes]:
    """Yield the inputs as the fuzzer reads them."""
    for data in inputs(count, seed):
        yield len(data).to_bytes(2, "little") + data


def main(count: str, seed: str, directory: str | None = None) -> None:
    """Write the inputs."""
    if directory is None:
        sys.stdout.buffer.writelines(stream(int(count), int(seed)))
        return
    for number, data in enumerate(inputs(int(count), int(seed))):
        Path(directory, str(number)).write_bytes(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
