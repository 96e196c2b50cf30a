"""Texts of users that go into statements: whether they can be more than a part of one."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# What some database takes for an escape, a quote or a comment, and another does not.
_AMBIGUOUS = re.compile(r"[\\$`#\[]|--|/[*/]")


def without_quoted(text: str) -> str:
    """Return a text without what is inside single or double quotes.

    >>> without_quoted("SELECT 'it''s' FROM t")
    'SELECT  FROM t'
    """
    return _QUOTED.sub("", text)


def is_one_statement(text: str) -> bool:
    """Tell whether no database can read a text as the end of one statement and another.

    >>> is_one_statement("a = ';'"), is_one_statement("1 = 1; COMMIT")
    (True, False)
    >>> is_one_statement("a = ';' -- it's")
    False
    """
    if ";" not in text:
        return True
    outside = without_quoted(text)
    return not (_AMBIGUOUS.search(text) or set(outside) & set("';\""))
