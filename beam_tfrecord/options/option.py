"""Defines `Option`, one row of the table of options, and the subjects that group the options."""

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
    """One option of the command line and of the Python functions."""

    keyword: str
    flag: str
    help: str
    default: Any = None
    form: Form = "text"
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    sources: tuple[str, ...] = ()
    group: str = GENERAL
    common: bool = False
