"""Names the files of vocabularies, and finds the categories that columns of numbers stand for."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfrecord.format.manifest import CATEGORIES_FILE, TRANSFORM_FN

# Larger vocabularies stay out of the schema, since every reader of a dataset parses it.
MAX_CATEGORIES = 10_000

# TFT writes this into a vocabulary file that would be empty, which TensorFlow cannot read.
NO_WORD = "49d0cd50-04bb-48c0-bc6f-5b575dce351a"

COUNTING = ("vocabulary", "one_hot")
_ESCAPED = re.compile(r"\\[nr\\]")
_PLAIN = {r"\n": "\n", r"\r": "\r", r"\\": "\\"}


def vocabulary_file(column: str, position: int, number: int = 1) -> str:
    """Return the name of a vocabulary file: that of the column if TensorFlow accepts it."""
    name = column
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", column):
        name = f"column_{position}_{re.sub(r'[^A-Za-z0-9_.-]', '_', column)}"
    return name if number == 1 else f"{name}_{number}"


def save_categories(
    directory: str, columns: Sequence[str], steps: Sequence[Mapping[str, Any]]
) -> None:
    """Write the categories of the columns of a fitted function into a file beside it.

    A column has categories if its last step is ``vocabulary`` or ``one_hot``; ``impute`` may
    follow. Vocabularies of more than `MAX_CATEGORIES`, and of bytes that are not text, are left
    out.
    """
    found = {}
    for position, name in enumerate(columns):
        ops = [step["op"] for step in steps if name in step["columns"]]
        while ops and ops[-1] == "impute":
            ops.pop()
        if ops and ops[-1] in COUNTING:
            number = sum(op in COUNTING for op in ops)
            words = vocabulary_file(name, position, number)
            if categories := _categories(os.path.join(directory, TRANSFORM_FN, "assets", words)):
                found[name] = categories
    with open(os.path.join(directory, CATEGORIES_FILE), "w", encoding="utf-8") as file:
        json.dump(found, file)


def _categories(path: str) -> list[str]:
    """Return the words of a vocabulary file, category 0 first; see the limits above."""
    with open(path, "rb") as file:
        lines = [line for line, _ in zip(file, range(MAX_CATEGORIES + 1), strict=False)]
    if len(lines) > MAX_CATEGORIES:
        return []
    try:
        words = b"".join(lines).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return []
    return [] if words == [NO_WORD] else [_ESCAPED.sub(_plain, word) for word in words]


def _plain(escape: re.Match[str]) -> str:
    return _PLAIN[escape[0]]
