"""Rewrites numbers and dates of local formats to the forms that the native kernel reads.

A `Format` rewrites the texts of a column: ``1.234,5`` to ``1234.5`` and ``31.12.2024`` to
``2024-12-31``. Values in other forms stay as they are, so they are text, or rejects. A value that
would be read without the format, but does not have it, such as ``1.5`` with a decimal comma, gets a
mark in front, so that it is neither a number nor a date.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from beam_tfrecord.base.text import not_found
from beam_tfrecord.errors import UsageError, quoted
from beam_tfrecord.features.arrow_types import bare_type
from beam_tfrecord.options.sources import CsvOptions

_MARK = "?"
_PLAIN_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
_PLAIN_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"

# Directives of `strptime`, in an order in which `_COMPLETE` has the sets of them that are enough.
_ORDER = "YymbBdHIMSfpz"
_COMPLETE = re.compile("[Yy][mbB]d((HM(Sf?)?|IM(Sf?)?p)z?)?")


def _directives(date_format: str) -> str:
    """Return the letters of the directives of a format, in order."""
    found = [piece[-1] for piece in re.findall("%.?", date_format.replace("%%", ""))]
    return "".join(sorted(found, key=_ORDER.find))


def _is_like_a_number(date_format: str) -> bool:
    """Return whether values in a format may be numbers, too."""
    return re.fullmatch("(?:%[YymdHIMSf])*[.,]?(?:%[YymdHIMSf])*", date_format) is not None


def _iso(text: str, formats: Iterable[str]) -> str | None:
    """Return a date or time in ISO form, by the first format that it has; None if it has none."""
    for date_format in formats:
        with contextlib.suppress(ValueError):
            moment = datetime.datetime.strptime(text, date_format)
            has_time = "M" in _directives(date_format)
            return moment.isoformat() if has_time else moment.date().isoformat()
    return None


@dataclasses.dataclass(frozen=True)
class Format:
    """How the values of a column are written."""

    nulls: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    thousands: str | None = None
    decimal: str = "."

    def needed_for(self, arrow: pa.DataType) -> Format | None:
        """Return what matters for values of a type; None if nothing does."""
        types, value_type = pa.types, bare_type(arrow)
        found = Format(self.nulls)
        if types.is_temporal(value_type):
            found = Format(self.nulls, self.dates)
        elif types.is_primitive(value_type) or types.is_decimal(value_type):
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
        distinct = texts.dictionary_encode()
        made = [_iso(text, self.dates) for text in distinct.dictionary.to_pylist()]
        return pc.coalesce(pa.array(made, pa.string()).take(distinct.indices), marked)

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


def _marked(texts: pa.Array, where: pa.Array) -> pa.Array:
    return pc.if_else(where, pc.binary_join_element_wise(_MARK, texts, ""), texts)


def check_formats(options: CsvOptions) -> None:
    """Check all options of formats that do not depend on the columns."""
    for word in options.null_in:
        if word.find("=") < 1:
            raise UsageError(f"--null-in {quoted(word)} names no column: write COLUMN=WORD")
    for text in options.date_formats:
        column, date_format = _divided(text)
        if not _COMPLETE.fullmatch(_directives(date_format)):
            raise UsageError(
                f"--date-format {quoted(date_format)} is no format of dates: pass %d, %m (or %b, "
                "%B) and %Y (or %y) once each, and for times %H and %M (or %I, %M and %p), "
                "perhaps %S, %f and %z"
            )
        if _is_like_a_number(date_format) and not column:
            raise UsageError(
                f"--date-format {quoted(text)} would read integers as dates: write COLUMN={text}"
            )
    for name, character in (("thousands", options.thousands), ("decimal", options.decimal)):
        if character is not None and not _is_mark(character):
            raise UsageError(f"--{name} {character!r} is not one character such as ',' or '.'")
    if options.thousands == options.decimal:
        raise UsageError(f"--thousands and --decimal are both {options.decimal!r}: pass another")


def check_columns(options: CsvOptions, names: Sequence[str]) -> None:
    """Check that the columns of formats and words are there."""
    columns = [("--date-format", _divided(text)[0]) for text in options.date_formats]
    columns += [("--null-in", word.partition("=")[0]) for word in options.null_in]
    for flag, name in columns:
        if name and name not in names:
            raise UsageError(not_found(name, names, of=flag))


def formats_of(options: CsvOptions, names: Sequence[str]) -> dict[str, Format]:
    """Return the formats of the columns that have one."""
    divided = [_divided(text) for text in options.date_formats]
    general = [text for column, text in divided if not column]
    words = [text.partition("=") for text in options.null_in]
    formats = {}
    for name in names:
        nulls = [word for column, _, word in words if column == name]
        dates = [text for column, text in divided if column == name] or general
        found = Format(tuple(nulls), tuple(dates), options.thousands, options.decimal)
        if found != Format():
            formats[name] = found
    return formats


def _divided(text: str) -> tuple[str, str]:
    """Return column and format of ``column=format``; the column is empty if there is none."""
    at = text.rfind("=", 0, max(text.find("%"), 0))
    return text[: max(at, 0)], text[at + 1 :]


def _is_mark(character: str) -> bool:
    return len(character) == 1 and not character.isalnum() and character not in "+-\r\n\0"
