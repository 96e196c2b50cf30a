"""Declares every option once: its Python keyword, flag, default and help text.

The classes in `options.sources` and `options.jobs` declare the options: an `Option` annotates each
field. The command line makes its flags from them, and calls the Python function of the same name
with the keywords. Error messages name options by flag, and `beam_tfrecord.errors` replaces flags by
keywords for Python callers. This package imports no other part of the package, so that importing it
is fast.
"""

from __future__ import annotations

import dataclasses
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

    It annotates a field of a dataclass, which adds its name and its default. The class decides the
    group of the options that name none.

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
    def flag_help(self) -> str:
        """The help of the flag, which says whether it may be repeated."""
        is_list = self.form == "words"
        return f"{self.help.removesuffix('.')}; may be repeated." if is_list else self.help

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


def flags_of(*tables: tuple[str, type]) -> tuple[Option, ...]:
    """Return the options with flags of some classes, each with its name, default and group."""
    found: dict[str, Option] = {}
    for group, table in tables:
        for field in dataclasses.fields(table):
            hint: Any = field.type
            (option,) = hint.__metadata__
            default = None if field.default is dataclasses.MISSING else field.default
            own = {"keyword": field.name, "default": default, "group": option.group or group}
            if option.flag:
                found.setdefault(field.name, dataclasses.replace(option, **own))
    return tuple(found.values())
