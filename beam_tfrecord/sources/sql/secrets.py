"""Passwords: out of everything that is written, sent or shown.

A password that comes inside a URL, or as an argument, is taken out at once and kept in this
process alone, by the URL without it. Runners inside this process find it there; workers elsewhere
need an environment variable or a file of their own.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote, unquote

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.sql.database import SqlOptions

_HIDDEN = "***"
_SCHEME = r"^((?:jdbc:)?[a-z0-9+.:_-]*?//[^/?#;@:]*):"
_USERINFO = re.compile(_SCHEME + r"([^/?#;]*)@", re.I)
# A password that should have been percent-encoded: rather hide too much than too little.
_RAW_USERINFO = re.compile(_SCHEME + r"(.*)@(?=[^@]*$)", re.I)
_ORACLE = re.compile(r"^(jdbc:oracle:[a-z]+:[^/@]+)/([^@]*)@", re.I)
_PARAMETER = re.compile(
    r"([?&;])(password|pwd|passwd|passphrase|sslpassword|token|secret|accesskey)=([^&;]*)", re.I
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+|jdbc:\S+", re.I)

# By URL without the password: what this process was told.
_held: dict[str, str] = {}


def take_password(url: str) -> tuple[str, str | None]:
    """Split a URL into itself without its password, and the password.

    ``//user:password@host``, ``jdbc:oracle:thin:user/password@…`` and parameters such as
    ``?password=`` or ``;pwd=`` are known. An empty password counts as none.
    """
    found: list[str] = []
    for pattern in (_USERINFO, _RAW_USERINFO, _ORACLE):
        if match := pattern.search(url):
            found.append(match[2] if pattern is _ORACLE else unquote(match[2]))
            url = f"{match[1]}@{url[match.end() :]}"
    for match in _PARAMETER.finditer(url):
        found.append(unquote(match[3]))
    url = _PARAMETER.sub(lambda match: match[1], url)
    url = re.sub(r"[?&;]+$", "", re.sub(r"([?&;])[&;]+", r"\1", url))
    return url, next((password for password in found if password), None)


def hold_password(url: str, password: str) -> None:
    """Keep a password in this process, by the URL without it."""
    _held[url] = password


def has_held_password(url: str) -> bool:
    """Tell whether this process keeps a password of a URL."""
    return url in _held


def password_of(url: str, options: SqlOptions) -> str | None:
    """Return the password to connect with; None where there is none to give.

    Raises:
        UsageError: The environment variable or file that should hold it is not there.
    """
    if options.password_env is not None:
        password = os.environ.get(options.password_env)
        if password is None:
            raise UsageError(
                f"no password: environment variable {options.password_env!r} is not set where "
                "the database is read: set it on the workers"
            )
        return password
    if options.password_file is not None:
        try:
            with open(options.password_file, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except OSError as error:
            raise UsageError(
                f"cannot read password file {options.password_file!r}: {error.strerror}: "
                "put it where the database is read"
            ) from None
    return _held.get(url)


def without_password(text: str, password: str | None = None) -> str:
    """Return text, such as a driver's message, without a password in any form.

    Args:
        text: Whatever would be shown or written.
        password: The password, where it is known; those inside URLs are found anyway.
    """
    for secret in (password, quote(password, safe="") if password else None):
        if secret:
            text = text.replace(secret, _HIDDEN)
    return _URL.sub(lambda match: take_password(match[0])[0], text)
