"""The table of all options: the flag, Python keyword, default and help text of each.

The classes in `options.jobs` and `options.sources` declare the options. The command line makes its
flags from them, and calls the Python function of the same name with the keywords. Error messages
name options by flag, and `beam_tfrecord.errors` replaces flags by keywords for Python callers. This
package imports no other part of the package, so that importing it is fast.
"""

from __future__ import annotations

from beam_tfrecord.options.jobs import InputOptions, JobOptions, PreprocessOptions, WriteOptions
from beam_tfrecord.options.option import INPUT, ORDER, PREPROCESSING, Option, flags_of
from beam_tfrecord.options.sources import SOURCE_OPTIONS

__all__ = ["EXTRACT_OPTIONS", "FROM", "SOURCE_OPTIONS", "WRITE_OPTIONS", "Option", "flag_of"]

(FROM,) = flags_of((INPUT, InputOptions))
EXTRACT_OPTIONS = flags_of((INPUT, JobOptions))
WRITE_OPTIONS = flags_of(
    (INPUT, JobOptions), (PREPROCESSING, PreprocessOptions), (ORDER, WriteOptions)
)


def flag_of(keyword: str) -> str:
    """Return the flag of the option `keyword`, for messages; the keyword if it has no flag."""
    flags = {option.keyword: option.flag for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)}
    return flags.get(keyword, keyword)
