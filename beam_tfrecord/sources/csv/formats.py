"""Rewrites numbers and dates of other countries to the forms that the native kernel reads.

A `Format` rewrites the texts of a column: ``1.234,5`` to ``1234.5`` and ``31.12.2024`` to
``2024-12-31``. Values in other forms stay as they are, so they are text, or rejects. A value that
would be read without the format, but does not have it, such as ``1.5`` with a decimal comma, gets a
mark in front, so that it is neither a number nor a date.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.errors import UsageError, quoted
from beam_tfrecord.sources.csv.columns import values_of
from beam_tfrecord.tables import not_found

_MARK = "?"
_PLAIN_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"

_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
# What each directive matches; a strict subset of Python's `strptime`, with English names. The order
# of alternatives matters if no character separates two directives.
_DIRECTIVES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "1[0-2]|0[1-9]|[1-9]",
    "b": f"(?i:{'|'.join(name[:3] for name in _MONTHS)})",
    "B": f"(?i:{'|'.join(_MONTHS)})",
    "d": "3[01]|[12][0-9]|0[1-9]|[1-9]",
    "H": "2[0-3]|[01][0-9]|[0-9]",
    "I": "1[0-2]|0[1-9]|[1-9]",
    "M": "[0-5][0-9]|[0-9]",
    "S": "6[01]|[0-5][0-9]|[0-9]",
    "f": "[0-9]{1,6}",
    "p": "(?i:am|pm)",
    "z": "Z|[+-][0-9]{2}:?[0-5][0-9]",
}
_ORDER = "".join(_DIRECTIVES)
_COMPLETE = re.compile("[Yy][mbB]d((HM(Sf?)?|IM(Sf?)?p)z?)?")
_HOURS = [f"{hour % 12 or 12:02}{half}" for half in ("am", "pm") for hour in range(12)]
_PIECE = re.compile("%(.?)|[^%]+", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class DateFormat:
    """A format of dates or times, such as ``%d.%m.%Y %H:%M``."""

    text: str
    pattern: str
    parts: frozenset[str]

    @property
    def is_like_a_number(self) -> bool:
        """Whether values may be numbers, too."""
        return re.fullmatch("(?:%[YymdHIMSf])*[.,]?(?:%[YymdHIMSf])*", self.text) is not None

    def iso(self, texts: pa.Array) -> pa.Array:
        """Return each text in the form ``2024-12-31`` or ``2024-12-31T23:59:59.5``.

        A text that does not match the pattern, or is no date of the calendar, becomes null.
        """
        found = pc.extract_regex(texts, pattern=self.pattern)
        part = {name: pc.struct_field(found, name) for name in self.parts}
        date = pc.binary_join_element_wise(_year(part), _month(part), _two(part["d"]), "-")
        if not self.parts & {"H", "I"}:
            return _readable(date, pa.date32())
        seconds = _two(part["S"]) if "S" in part else "00"
        clock = pc.binary_join_element_wise(_hour(part), _two(part["M"]), seconds, ":")
        if "f" in part:
            clock = pc.binary_join_element_wise(clock, part["f"], ".")
        time = pc.binary_join_element_wise(date, "T", clock, part.get("z", ""), "")
        return _readable(time, pa.timestamp("us", "UTC" if "z" in part else None))


def _readable(texts: pa.Array, arrow: pa.DataType) -> pa.Array:
    """Return texts in which those are null that are not values of a type."""
    is_valid = pc.is_valid(values_of(texts, pa.field("", arrow)).array)
    return pc.if_else(is_valid, texts, pa.scalar(None, texts.type))


def _two(digits: pa.Array) -> pa.Array:
    return pc.ascii_lpad(digits, 2, "0")


def _year(part: dict[str, pa.Array]) -> pa.Array:
    if "Y" in part:
        return part["Y"]
    # As POSIX and Python have it: 69 to 99 are of the 20th century.
    century = pc.if_else(pc.greater_equal(part["y"], "69"), "19", "20")
    return pc.binary_join_element_wise(century, part["y"], "")


def _month(part: dict[str, pa.Array]) -> pa.Array:
    if "m" in part:
        return _two(part["m"])
    name = pc.ascii_lower(pc.utf8_slice_codeunits(part["b"] if "b" in part else part["B"], 0, 3))
    number = pc.index_in(name, pa.array([month[:3] for month in _MONTHS]))
    return _two(pc.cast(pc.add(number, 1), pa.string()))


def _hour(part: dict[str, pa.Array]) -> pa.Array:
    if "H" in part:
        return _two(part["H"])
    hour = pc.binary_join_element_wise(_two(part["I"]), pc.ascii_lower(part["p"]), "")
    return _two(pc.cast(pc.index_in(hour, pa.array(_HOURS)), pa.string()))


@functools.lru_cache
def date_format(text: str) -> DateFormat:
    """Compile a format."""
    pattern, parts = "", []
    for piece in _PIECE.finditer(text):
        name = piece[1]
        if name is None or name == "%":
            pattern += re.escape("%" if name else piece[0])
        else:
            parts.append(name or "%")
            pattern += f"(?P<{name}>{_DIRECTIVES.get(name)})"
    in_order = "".join(sorted(parts, key=_ORDER.find))
    if not _COMPLETE.fullmatch(in_order):
        raise UsageError(
            f"--date-format {quoted(text)} is no format of dates: pass %d, %m (or %b, %B) and %Y "
            "(or %y) once each, and for times %H and %M (or %I, %M and %p), perhaps %S, %f and %z"
        )
    return DateFormat(text, f"^{pattern}$", frozenset(parts))


@dataclasses.dataclass(frozen=True)
class Format:
    """How the values of a column are written."""

    nulls: tuple[str, ...] = ()
    dates: tuple[DateFormat, ...] = ()
    thousands: str | None = None
    decimal: str = "."

    def needed_for(self, arrow: pa.DataType) -> Format | None:
        """Return what matters for values of a type; None if nothing does."""
        value_type = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
        found = Format(self.nulls)
        if pa.types.is_temporal(value_type):
            found = Format(self.nulls, self.dates)
        elif is_number(value_type):
            found = Format(self.nulls, (), self.thousands, self.decimal)
        return None if found == Format() else found

    def plain(self, texts: pa.Array) -> pa.Array:
        """Return trimmed texts as the kernel reads them; `nulls` become null."""
        texts = self.without_nulls(texts)
        if self.thousands is not None or self.decimal != ".":
            texts = self._with_plain_numbers(texts)
        if not self.dates:
            return texts
        marked = _marked(texts, pc.match_substring_regex(texts, pattern=_PLAIN_DATE))
        return pc.coalesce(*(one.iso(texts) for one in self.dates), marked)

    def without_nulls(self, texts: pa.Array) -> pa.Array:
        """Return texts in which `nulls` are null."""
        if not self.nulls:
            return texts
        is_null = pc.is_in(texts, value_set=pa.array(self.nulls, texts.type))
        return pc.if_else(is_null, pa.scalar(None, texts.type), texts)

    def _with_plain_numbers(self, texts: pa.Array) -> pa.Array:
        digits, point = "[0-9]+", re.escape(self.decimal)
        plain = texts
        if self.thousands is not None:
            digits = f"(?:[0-9]{{1,3}}(?:{re.escape(self.thousands)}[0-9]{{3}})+|[0-9]+)"
            plain = pc.replace_substring(plain, self.thousands, "")
        plain = pc.replace_substring(plain, self.decimal, ".")
        pattern = f"^[+-]?(?:{digits}(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?$"
        is_number = pc.match_substring_regex(texts, pattern=pattern)
        marked = _marked(texts, pc.match_substring_regex(texts, pattern=_PLAIN_NUMBER))
        return pc.if_else(is_number, plain, marked)


def is_number(arrow: pa.DataType) -> bool:
    """Return whether values of a type are numbers."""
    types = pa.types
    return bool(types.is_integer(arrow) or types.is_floating(arrow) or types.is_decimal(arrow))


def _marked(texts: pa.Array, where: pa.Array) -> pa.Array:
    return pc.if_else(where, pc.binary_join_element_wise(_MARK, texts, ""), texts)


@dataclasses.dataclass(frozen=True)
class Formats:
    """The formats of all columns, as the options of the source state them."""

    dates: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()
    thousands: str | None = None
    decimal: str = "."

    def check(self) -> None:
        """Check all that does not depend on the columns."""
        for word in self.nulls:
            if "=" not in word:
                raise UsageError(f"--null-in {quoted(word)} names no column: write COLUMN=WORD")
        for text in self.dates:
            column, format_text = _divided(text)
            if date_format(format_text).is_like_a_number and not column:
                raise UsageError(
                    f"--date-format {quoted(text)} would read integers as dates: "
                    f"write COLUMN={text}"
                )
        for name, character in (("thousands", self.thousands), ("decimal", self.decimal)):
            if character is not None and not _is_mark(character):
                raise UsageError(f"--{name} {character!r} is not one character such as ',' or '.'")
        if self.thousands == self.decimal:
            raise UsageError(f"--thousands and --decimal are both {self.decimal!r}: pass another")

    def check_columns(self, names: Sequence[str]) -> None:
        """Check that the columns of formats and words are there."""
        columns = {"--date-format": [_divided(text)[0] for text in self.dates]}
        columns["--null-in"] = [
            word.partition("=")[0] for word in self.nulls if _owner(word, names) is None
        ]
        for flag, named in columns.items():
            if missing := [name for name in named if name and name not in names]:
                raise UsageError(not_found(missing[0], names, of=flag))

    def of(self, name: str, names: Sequence[str]) -> Format | None:
        """Return the format of a column of `names`; None if it has none of its own."""
        nulls = [word[len(name) + 1 :] for word in self.nulls if _owner(word, names) == name]
        divided = [_divided(text) for text in self.dates]
        own = [text for column, text in divided if column == name]
        dates = own or [text for column, text in divided if not column]
        found = Format(tuple(nulls), tuple(map(date_format, dates)), self.thousands, self.decimal)
        return None if found == Format() else found


def _divided(text: str) -> tuple[str, str]:
    """Return column and format of ``column=format``; the column is empty if there is none."""
    at = text.rfind("=", 0, max(text.find("%"), 0))
    return text[: max(at, 0)], text[at + 1 :]


def _owner(word: str, names: Iterable[str]) -> str | None:
    """Return the column of ``column=word``, whose name may have an equals sign, too."""
    return max((name for name in names if word.startswith(f"{name}=")), key=len, default=None)


def _is_mark(character: str) -> bool:
    return len(character) == 1 and not character.isalnum() and character not in "+-\r\n\0"
