"""Keeps passwords out of everything that is written, sent or shown, driver errors included.

A password in a URL or an argument is removed at once and stored in this process only, under the
URL without it. Runners inside this process find it there. Workers elsewhere need an environment
variable or a file of their own.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

from beam_tfrecord.errors import BeamTFRecordError, UsageError
from beam_tfrecord.sources.sql.database import ConnectionLost, SqlOptions

_HIDDEN = "***"
_SCHEME = r"^((?:jdbc:)?[a-z0-9+.:_-]*?//[^/?#;@:]*):"
_USERINFO = re.compile(_SCHEME + r"([^/?#;]*)@", re.I)
# For a password that should have been percent-encoded; hides too much rather than too little.
_RAW_USERINFO = re.compile(_SCHEME + r"(.*)@(?=[^@]*$)", re.I)
_ORACLE = re.compile(r"^(jdbc:oracle:[a-z]+:[^/@]+)/([^@]*)@", re.I)
_PARAMETER = re.compile(
    r"([?&;])(password|pwd|passwd|passphrase|sslpassword|token|secret|accesskey)=([^&;]*)", re.I
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+|jdbc:\S+", re.I)

# Passwords of this process, by URL without the password.
_held: dict[str, str] = {}


def take_password(url: str) -> tuple[str, str | None]:
    """Split a URL into the URL without its password, and the password.

    Recognizes ``//user:password@host``, ``jdbc:oracle:thin:user/password@…`` and parameters such
    as ``?password=`` or ``;pwd=``. An empty password counts as none.
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
    """Store the password of a URL in this process."""
    _held[url] = password


def has_held_password(url: str) -> bool:
    """Return whether this process stores a password for a URL."""
    return url in _held


def password_of(url: str, options: SqlOptions) -> str | None:
    """Return the password to connect with, or None if there is none.

    Raises:
        UsageError: The environment variable or file that should hold it does not exist.
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
    """Return text, such as a driver's message, with passwords removed.

    Args:
        text: Any text; passwords inside URLs are always removed.
        password: A password to remove in plain and percent-encoded form.
    """
    for secret in (password, quote(password, safe="") if password else None):
        if secret:
            text = text.replace(secret, _HIDDEN)
    return _URL.sub(lambda match: take_password(match[0])[0], text)


@contextlib.contextmanager
def driver_errors(
    translate: Callable[[Exception, Callable[[str], str]], Exception | None],
    password: str | None = None,
) -> Iterator[None]:
    """Raise a driver's exceptions as errors of this package, in one line without the password.

    Args:
        translate: Returns the error to raise, or None for an exception that is not the driver's.
            Its arguments are the exception and a function that removes the password from text.
        password: The password of the connection.
    """
    try:
        yield
    except (BeamTFRecordError, ConnectionLost):
        raise
    except Exception as error:
        found = translate(error, lambda text: without_password(text, password))
        if found is None:
            raise
        # The driver's exception may hold the password, so it is not chained.
        raise type(found)(str(found).splitlines()[0]) from None
