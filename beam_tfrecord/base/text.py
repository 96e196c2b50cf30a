"""Formats sizes, counts, names and tables for people, and parses sizes such as ``128MB``.

Tables are text for terminals, or HTML for notebooks: plain, so that it takes on the style of the
notebook, and escaped, because names of columns come from files that anyone may have written.
"""

from __future__ import annotations

import fractions
import html
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from beam_tfrecord.errors import UsageError, did_you_mean

MAX_ROWS = 50
_MAX_NAMES = 10
_MAX_CHARACTERS = 60
# MB is 10^6 bytes, MiB is 2^20 bytes.
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


def format_seconds(seconds: float) -> str:
    """Return a duration for a human: ``3.2 s``, ``2 min 05 s``, ``1 h 02 min``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def printable(text: str) -> str:
    """Return text on one line, with control characters escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def text_by(form: Callable[[Any], str], value: Any) -> str:
    """Return `str` or `repr` of an object of the user, or in words that these raise an error."""
    try:
        return form(value)
    except Exception as error:
        return f"({form.__name__} of it raises {type(error).__name__})"


def cell(text: str, most: int = _MAX_CHARACTERS) -> str:
    """Return text on one line of at most so many characters, with control characters escaped."""
    line = printable(text)
    return line if len(line) <= most else line[: most - 1] + "…"


def share_text(share: float | None) -> str:
    """Return a share in per cent; empty for None."""
    if not share:
        return "" if share is None else "0%"
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def listed(names: Sequence[str]) -> str:
    """Return the first ten names, and the number of the others."""
    more = len(names) - _MAX_NAMES
    shown = ", ".join(map(cell, names[:_MAX_NAMES]))
    return f"{shown} and {more:,} more" if more > 0 else shown


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def not_found(
    name: str, columns: Iterable[str], *, of: str | None = None, where: str = "the input"
) -> str:
    """Return the message that there is no column `name`, the most similar one, and ten."""
    names = list(dict.fromkeys(columns))
    column, *fields = name.split("/")
    is_field = fields and column in names and not any(n.startswith(f"{column}/") for n in names)
    hint = f"pass {column!r} for all of its fields;" if is_field else did_you_mean(name, names)
    known = f"the columns are {listed(names)}" if names else "it has none"
    named = f"column {name!r}" if of is None else f"column {name!r} of {of}"
    return f"{named} is not in {where}: {hint and f'{hint} '}{known}"


def text_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[int] = (),
    max_rows: int | None = None,
    max_width: int | None = None,
) -> str:
    """Return rows of cells as aligned columns."""
    lines = [header, *rows[:max_rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    if max_width is not None:
        ends = itertools.accumulate(widths, lambda end, width: end + 2 + width)
        fitting = max(1, sum(end <= max_width for end in ends))
        lines, widths = [line[:fitting] for line in lines], widths[:fitting]
    aligned = [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    left_out = len(header) - len(widths)
    columns = [f"… and {counted(left_out, 'more column')}"] if left_out else []
    return "\n".join([*aligned, *columns, *rest_lines(rows, max_rows)])


def html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()
) -> str:
    """Return the first 50 rows of cells as an HTML table, and the number of the others."""

    def line(tag: str, cells: Sequence[str]) -> str:
        sides = ("right" if column in right else "left" for column in range(len(cells)))
        return "".join(
            f'<{tag} style="text-align: {side}">{html.escape(text)}</{tag}>'
            for side, text in zip(sides, cells, strict=True)
        )

    body = "".join(f"<tr>{line('td', cells)}</tr>" for cells in rows[:MAX_ROWS])
    return (
        f"<table><thead><tr>{line('th', header)}</tr></thead><tbody>{body}</tbody></table>"
        + "".join(map(paragraph, rest_lines(rows, MAX_ROWS)))
    )


def paragraph(text: str) -> str:
    """Return text as an HTML paragraph, escaped."""
    return f"<p>{html.escape(text)}</p>"


def rest_lines(rows: Sequence[Any], max_rows: int | None) -> list[str]:
    """Return the line with the number of rows beyond `max_rows`, if there are any."""
    more = len(rows[max_rows:]) if max_rows is not None else 0
    return [f"… and {more:,} more"] if more else []
