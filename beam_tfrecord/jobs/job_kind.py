"""What kinds of jobs there are: each is run, resumed and told of in the same way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from beam_tfrecord.publish.dataset import Identity
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.sources.listing import Listing
from beam_tfrecord.storage import Lease
from beam_tfrecord.workdir.target import Target


class JobSettings(Protocol):
    """What all jobs are told."""

    @property
    def source(self) -> Source:
        """What to read."""

    @property
    def target(self) -> Target:
        """Where to write."""

    @property
    def overwrite(self) -> bool:
        """Replace what is there."""

    @property
    def runner(self) -> str:
        """Name of the Beam runner."""

    @property
    def pipeline_options(self) -> tuple[str, ...]:
        """Further Beam options, as on a command line."""

    @property
    def is_mapped(self) -> bool:
        """Rows go through a user's function."""


class Output(Protocol):
    """The manifest of what a job makes."""

    @property
    def fingerprint(self) -> str:
        """Of the job; empty where unknown."""


S = TypeVar("S", bound=JobSettings)
M = TypeVar("M", bound=Output)


@dataclasses.dataclass(frozen=True)
class Kind(Generic[S, M]):
    """A kind of job.

    Attributes:
        load: Reads the manifest of its output, given the path of that.
        identity: What an output is made from, given the settings and the files of the input.
        compose: Runs the pipeline of a job: settings, identity, temporary directory, what the
            input consists of, what ``job.json`` tells besides, and the right to write, which is
            None where nobody waits for the end of the job.
        warn: Tells what a user should know of the output, given the notes of the source.
    """

    load: Callable[[str], M]
    identity: Callable[[S, Sequence[InputFile]], Identity]
    compose: Callable[[S, Identity, str, Listing, Mapping[str, Any], Lease | None], None]
    warn: Callable[[S, Sequence[str]], None]
