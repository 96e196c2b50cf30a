"""Keeps database passwords out of messages, files and pickled jobs.

A password in a URL or an argument is removed at once and stored in this process only, under the
URL without the password. Runners inside this process find it there. Workers elsewhere need an
environment variable or a file of their own.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_HIDDEN = "***"
_SCHEME = r"^((?:jdbc:)?[a-z0-9+.:_-]*?//[^/?#;@:]*):"
_USERINFO = re.compile(_SCHEME + r"([^/?#;]*)@", re.I)
# Finds a password that should have been percent-encoded: hides too much rather than too little.
_RAW_USERINFO = re.compile(_SCHEME + r"(.*)@(?=[^@]*$)", re.I)
_ORACLE = re.compile(r"^(jdbc:oracle:[a-z]+:[^/@]+)/([^@]*)@", re.I)
_PARAMETER = re.compile(
    r"([?&;])(password|pwd|passwd|passphrase|sslpassword|token|secret|accesskey)=([^&;]*)", re.I
)
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+|jdbc:\S+", re.I)

# Passwords of this process, by URL without the password.
_stored: dict[str, str] = {}


def split_password(url: str) -> tuple[str, str | None]:
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


def store_password(url: str, password: str) -> None:
    """Store the password of a URL in this process."""
    _stored[url] = password


def stored_password(url: str) -> str | None:
    """Return the password that this process stores for a URL, or None if it stores none."""
    return _stored.get(url)


def without_password(text: str, password: str | None = None) -> str:
    """Remove passwords from a text, such as a driver's message."""
    for secret in (password, quote(password, safe="") if password else None):
        if secret:
            text = text.replace(secret, _HIDDEN)
    return _URL.sub(lambda match: split_password(match[0])[0], text)
