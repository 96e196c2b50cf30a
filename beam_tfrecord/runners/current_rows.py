"""Notes which rows a worker process is at, for the message about a worker that died."""

from __future__ import annotations

from collections.abc import Callable

report: Callable[[str], None] | None = None


def note(first: str, last: str) -> None:
    """Report the addresses of the first and the last row of the next batch, in a worker process."""
    if report is not None:
        report(f"{first} to {last}")
