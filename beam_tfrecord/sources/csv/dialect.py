"""How CSV text is written: the delimiter, the quotes, the encoding, and the words for null."""

from __future__ import annotations

import codecs
import dataclasses
import functools

from beam_tfrecord.errors import UsageError
from beam_tfrecord.native import values

# Null where a number, a truth value, a date or a time is expected; text in columns of text.
NULL_WORDS = (
    *("NA", "N/A", "n/a", "#N/A", "#NA", "<NA>"),
    *("NULL", "Null", "null", "None", "none", "NaT"),
)


@dataclasses.dataclass(frozen=True)
class Dialect:
    r"""The characters that give CSV text its structure; each is one ASCII character.

    Attributes:
        delimiter: Between two fields.
        quote: Around a field, where it is the first character of the field; None for no quotes.
        escape: Takes the meaning from the character behind it, in quotes and outside.
        double_quote: Two quotes inside quotes mean one.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    double_quote: bool = True

    def __post_init__(self) -> None:
        given = {"delimiter": self.delimiter, "quote": self.quote, "escape": self.escape}
        used: dict[str, str] = {}
        for name, character in given.items():
            if character is None:
                continue
            if len(character) != 1 or not 0 < ord(character) < 128 or character in "\r\n":
                raise UsageError(
                    f"{name} {character!r} is not one ASCII character: pass a single one"
                )
            if character in used:
                raise UsageError(
                    f"{name} and {used[character]} are both {character!r}: pass two different ones"
                )
            used[character] = name

    @property
    def settings(self) -> values.Dialect:
        """The dialect as the kernel takes it."""
        quote = None if self.quote is None else ord(self.quote)
        escape = None if self.escape is None else ord(self.escape)
        return ord(self.delimiter), quote, escape, self.double_quote


def is_utf8(encoding: str) -> bool:
    """Tell whether text in `encoding` can be taken as UTF-8 as it stands."""
    return codec_name(encoding) in ("utf-8", "utf-8-sig")


def codec_name(encoding: str) -> str:
    """Return Python's own name of `encoding`.

    Raises:
        UsageError: There is none.
    """
    try:
        name = codecs.lookup(encoding).name
        # Python has codecs of other things too, and one that refuses all text.
        if "A".encode(name).decode(name, "replace") != "A":
            raise LookupError(f"{encoding!r} is not for text")
        return name
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"encoding {encoding!r} is not known: pass a name such as utf-8, latin-1 or utf-16"
        ) from error


@functools.lru_cache
def is_cuttable(encoding: str) -> bool:
    """Tell whether a byte below 128 is always that ASCII character, so that bytes can be cut.

    So it is in UTF-8 and where every byte is one character. In other encodings of several bytes
    the second byte of a character may look like a quote or a delimiter.
    """
    if is_utf8(encoding):
        return True
    alone = (bytes([byte]).decode(encoding, "replace") for byte in range(128))
    if any(character != chr(byte) for byte, character in enumerate(alone)):
        return False
    pairs = (bytes([byte, ord("A")]).decode(encoding, "replace") for byte in range(128, 256))
    return all(len(pair) == 2 and pair[1] == "A" for pair in pairs)


def to_utf8(text: bytes, encoding: str) -> bytes:
    """Return `text`, in a cuttable encoding, as UTF-8.

    What has no meaning in the encoding becomes invalid UTF-8, to be found where it matters.
    """
    if is_utf8(encoding):
        return text
    return text.decode(encoding, "surrogateescape").encode("utf-8", "surrogatepass")
