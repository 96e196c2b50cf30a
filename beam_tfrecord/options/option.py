"""Defines `Option`, which says what a field of a class of options is for, and their subjects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

Form = Literal[
    "text", "count", "number", "choice", "switch", "off", "names", "words", "types", "char"
]
"""How a flag's text becomes a value: the flag sets a ``switch`` to True and an ``off`` to False,
``names`` splits at commas, ``words`` is a flag that may be repeated, ``types`` reads
``column=type,…``, ``char`` is one character, ``count`` a number or text that the function parses;
``text``, ``number`` and ``choice`` are plain."""

# The forms of flags with these placeholders; others have plain text.
_FORMS: dict[str, Form] = {
    **dict.fromkeys(("A,B", "C,…"), "names"),
    **dict.fromkeys(("N", "S"), "number"),
    **dict.fromkeys(("COUNT", "SHARE"), "count"),
    **dict.fromkeys(("col=type,…", "key=value,…"), "types"),
    "CHAR": "char",
}

INPUT = "Input"
CSV = "CSV"
ORDER = "Splits and order"
OUTPUT = "Output"
PREPROCESSING = "Functions and preprocessing"
REJECTS = "Rejects"
SQL = "SQL databases"
IMAGES = "Images"
NUMPY = "NumPy arrays"
LAKE = "Delta Lake and Iceberg"
RUNNER = "Runner"
DATAFLOW = "Dataflow"
FLINK = "Flink and job servers"
GENERAL = "General options"

# The subjects of options, in the order of ``--help-all``.
GROUPS = (
    *(INPUT, CSV, ORDER, OUTPUT, PREPROCESSING, REJECTS),
    *(SQL, LAKE, IMAGES, NUMPY, RUNNER, DATAFLOW, FLINK, GENERAL),
)


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of Python functions, and of the command line if it has a flag.

    It annotates a field of a dataclass, which adds its name and its default. The attribute
    ``subject`` of the class is the group of its options that name no other.

    Attributes:
        help: Help of the command line and of the Python functions.
        usage: The flag, and the placeholder of its value, from which its form follows.
        doc: Help of the Python functions, if it differs.
        common: Whether the short help shows it.
    """

    help: str
    usage: str = ""
    doc: str = ""
    choices: tuple[str, ...] = ()
    least: int | None = None
    common: bool = False
    keyword: str = ""
    default: Any = None
    group: str = ""

    @property
    def flag(self) -> str:
        """The flag; empty if only Python has the option."""
        return self.usage.partition(" ")[0]

    @property
    def metavar(self) -> str | None:
        """The placeholder of the value, if there is one."""
        return self.usage.partition(" ")[2] or None

    @property
    def form(self) -> Form:
        """How the text of the flag becomes a value."""
        if isinstance(self.default, bool):
            return "off" if self.default else "switch"
        if self.default == ():
            return "words"
        if self.metavar is None:
            return "choice"
        return _FORMS.get(self.metavar, "text")


def declared(*kinds: type) -> Iterator[Option]:
    """Yield the options that classes and their bases declare, each with its name and default."""
    bases = dict.fromkeys(base for kind in kinds for base in reversed(kind.__mro__))
    for base in bases:
        for name, hint in vars(base).get("__annotations__", {}).items():
            for option in getattr(hint, "__metadata__", ()):
                default = getattr(base, name, None)
                group = option.group or getattr(base, "subject", GENERAL)
                yield dataclasses.replace(option, keyword=name, default=default, group=group)


def flags_of(*kinds: type) -> tuple[Option, ...]:
    """Return the options of classes that have flags."""
    return tuple(option for option in declared(*kinds) if option.flag)
