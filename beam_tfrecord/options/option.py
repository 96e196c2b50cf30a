"""`Option`: one row of the table of options."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Form = Literal[
    "text", "count", "number", "choice", "switch", "off", "names", "words", "types", "char"
]
"""How a flag's text becomes a value: ``switch`` gives True and ``off`` False where the flag is
there, ``names`` splits at commas, ``words`` is a flag that may be repeated, ``types`` reads
``column=type,…``, ``char`` is one character, ``count`` a number or text that the function reads,
and the others are plain."""


@dataclasses.dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        keyword: Name of the argument of `write`, or of the field of a source's options.
        flag: What is typed.
        help: One sentence.
        default: Value where the flag is not there; the same in the function.
        form: How the flag's text becomes a value.
        metavar: What stands for the value in the help.
        choices: The possible values of a ``choice``.
        least: Smallest value of a ``number``, where it has one.
        sources: Kinds of input that have this option; empty: it is an argument of `write`.
    """

    keyword: str
    flag: str
    help: str
    default: Any = None
    form: Form = "text"
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    sources: tuple[str, ...] = ()
