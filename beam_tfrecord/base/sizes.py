"""Parses and formats byte sizes and counts; MB is 10^6 bytes, MiB is 2^20 bytes."""

from __future__ import annotations

import fractions
import re

from beam_tfrecord.errors import UsageError

_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgt", start=1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def parse_size(size: str | int) -> int:
    """Return the number of bytes for ``128MB``, ``1.5GiB`` or a plain number."""
    match = _SIZE.fullmatch(str(size).strip())
    if not match or match[2].lower() not in _UNITS:
        raise UsageError(f"cannot read size {size!r}: write 128MB or 64MiB")
    # A fraction is exact for any number of digits, unlike a float with its 53 bits.
    nbytes = int(fractions.Fraction(match[1]) * _UNITS[match[2].lower()])
    if nbytes <= 0:
        raise UsageError(f"size {size!r} is not positive")
    return nbytes


def format_size(nbytes: float) -> str:
    """Return a number of bytes as text for people, in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(nbytes) < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} TB"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 row`` or ``2,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
