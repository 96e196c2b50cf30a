"""Options after ``--``: checked against every option that Beam knows.

Beam itself drops an option it does not know with a warning, so that a typing error costs a run.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NoReturn

from beam_tfrecord.errors import UsageError
from beam_tfrecord.options.table import SOURCE_OPTIONS, WRITE_OPTIONS


def check_beam_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return `words` if each is an option of Beam, or the value of one; imports Beam.

    Raises:
        UsageError: An option is not Beam's, is ours, or its value is missing or wrong.
    """
    if not words:
        return ()
    from apache_beam.options.pipeline_options import PipelineOptions, _BeamArgumentParser

    import beam_tfrecord.runners.wheels  # noqa: F401 - it has options of its own

    class Parser(_BeamArgumentParser):
        """Beam's parser, with errors as ours instead of an exit."""

        def error(self, message: str) -> NoReturn:
            raise UsageError(f"Beam option after '--': {message}")

    parser = Parser(allow_abbrev=False, add_help=False)
    # A module that is imported twice registers its options twice: the last one counts.
    for options in {str(cls): cls for cls in PipelineOptions.__subclasses__()}.values():
        options._add_argparse_args(parser)
    known = [flag for action in parser._actions for flag in action.option_strings]
    ours = {option.flag for option in (*WRITE_OPTIONS, *SOURCE_OPTIONS)}
    if any(word.partition("=")[0] == "--runner" for word in words):
        raise UsageError("--runner goes before '--', as direct, flink, dataflow or another name")
    for word in words:
        _check_name(word.partition("=")[0], known, ours)
    _, unknown = parser.parse_known_args(list(words))
    if unknown:
        raise UsageError(f"{unknown[0]!r} after '--' belongs to no Beam option: write --name=value")
    return tuple(words)


def _check_name(flag: str, known: Sequence[str], ours: set[str]) -> None:
    if not flag.startswith("--") or flag in known:
        return
    if flag in ours:
        raise UsageError(f"{flag} is not Beam's: put it before '--'")
    near = difflib.get_close_matches(flag, [*known, *ours], n=1)
    if near and near[0] in ours:
        raise UsageError(f"{flag} is not an option of Beam: write {near[0]} before '--'")
    hint = f": did you mean {near[0]}?" if near else ""
    raise UsageError(f"{flag} is not an option of Beam{hint}")
