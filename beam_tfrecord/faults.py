"""Errors of the data on their way from a worker to the launcher.

A runner wraps what a worker raises in traces of its own, and some retry it in vain. A step that
meets an error on purpose therefore writes it down in the job's temporary directory first; the
launcher raises the first one it finds there in place of the runner's.
"""

from __future__ import annotations

import glob
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from beam_tfrecord import errors
from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.storage import put


class recorded:  # noqa: N801 - reads as a function where it is used
    """Wrap a generator function so that its errors are written to a directory.

    Args:
        function: From one element to any number.
        directory: Where to write; None: nowhere.
    """

    def __init__(self, function: Callable[[Any], Iterable[Any]], directory: str | None) -> None:
        self._function = function
        self._directory = directory

    def __call__(self, element: Any) -> Iterator[Any]:
        """Yield what the function makes of an element."""
        try:
            yield from self._function(element)
        except BeamTFRecordError as error:
            if self._directory is not None:
                record_fault(self._directory, error)
            raise


def record_fault(directory: str, error: BeamTFRecordError) -> None:
    """Write an error to a directory."""
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"fault-{uuid.uuid4().hex}.json")
    put(path, json.dumps({"type": type(error).__name__, "message": str(error)}).encode())


def recorded_fault(directory: str) -> BeamTFRecordError | None:
    """Return the error in a directory, or None; of several the first by its text."""
    found = []
    for path in glob.glob(os.path.join(glob.escape(directory), "fault-*.json")):
        with open(path, encoding="utf-8") as file:
            fault = json.load(file)
        found.append((fault["message"], fault["type"]))
    if not found:
        return None
    message, name = min(found)
    kind = getattr(errors, name, BeamTFRecordError)
    return kind(message)
