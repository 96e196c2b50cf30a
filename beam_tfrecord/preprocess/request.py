"""What a user asks for: steps, a function of their own, or one that was fitted before."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.preprocess.fitted import FITTED, check_fitted
from beam_tfrecord.preprocess.matrices import matrix_sha256
from beam_tfrecord.preprocess.steps import Step, load_steps, parse_step, steps_from_json
from beam_tfrecord.user_function import MapFunction, load_map

Transform = str | os.PathLike[str] | Callable[..., Any] | Sequence[Step | Mapping[str, Any]]

TRAIN = "train"
_READ_BYTES = 2**20


@dataclasses.dataclass(frozen=True)
class Request:
    """A preprocessing that is asked for; one of the first three is there.

    Attributes:
        steps: Declarative steps.
        function: A preprocessing function for TFT.
        fitted: Directory of a fitted one.
        fit: Split that statistics are made of.
        raw_too: Keep raw values too.
    """

    steps: tuple[Step, ...] = ()
    function: MapFunction | None = None
    fitted: str | None = None
    fit: str = TRAIN
    raw_too: bool = False

    def identity(self) -> dict[str, Any] | None:
        """Return what decides the output, as JSON values; None where that is not known."""
        told: dict[str, Any] = {"fit": self.fit, "raw_too": self.raw_too}
        if self.fitted is not None:
            return {**told, "fitted": _tree_sha256(self.fitted)}
        if self.function is not None:
            known = self.function.sha256
            name = getattr(self.function.function, "__qualname__", "")
            return None if known is None else {**told, "function": [name, known]}
        return {**told, "steps": [_step_identity(step) for step in self.steps]}


def make_request(
    transform: Transform | None,
    *,
    step: Sequence[str] = (),
    transform_fn: str | os.PathLike[str] | None = None,
    fit: str = TRAIN,
    raw_too: bool = False,
) -> Request | None:
    """Return what is asked for; None where nothing is.

    Args:
        transform: Steps, the path of their JSON, a function for TFT, or ``module:function`` or
            ``file.py:function``.
        step: Further steps, as they are typed.
        transform_fn: Directory of a fitted function.
        fit: Split that statistics are made of.
        raw_too: Keep raw values too.

    Raises:
        UsageError: They cannot be read, do not fit together, or TFT is not installed.
    """
    if transform is None and transform_fn is None and not step:
        if raw_too or fit != TRAIN:
            raise UsageError("there is nothing to preprocess: give transform or step")
        return None
    require("transform", "preprocessing")
    typed = tuple(parse_step(text) for text in step)
    if transform_fn is not None:
        if transform is not None or typed:
            raise UsageError("a fitted function has its steps already: leave out the others")
        directory = os.path.abspath(os.fspath(transform_fn))
        check_fitted(directory)
        return Request(fitted=directory, fit=fit, raw_too=raw_too)
    if callable(transform) or (isinstance(transform, str) and _names_function(transform)):
        if typed:
            raise UsageError("a preprocessing function does all itself: leave out the steps")
        return Request(function=load_map(transform), fit=fit, raw_too=raw_too)
    if isinstance(transform, str | os.PathLike):
        steps = load_steps(os.fspath(transform))
    else:
        steps = steps_from_json(transform or ())
    return Request(steps=(*steps, *typed), fit=fit, raw_too=raw_too)


def _names_function(text: str) -> bool:
    place, colon, name = text.rpartition(":")
    return bool(colon and place and name.isidentifier() and not text.endswith(".json"))


def _step_identity(step: Step) -> dict[str, Any]:
    told = step.to_json()
    if "matrix" in told:
        told["matrix"] = matrix_sha256(told["matrix"])
    return told


def _tree_sha256(directory: str) -> str:
    """Return the SHA-256 of the files of a fitted function, with their names."""
    digest = hashlib.sha256()
    for path in fitted_files(directory):
        digest.update(path.encode() + b"\0")
        with open(os.path.join(directory, path), "rb") as file:
            while piece := file.read(_READ_BYTES):
                digest.update(piece)
    return digest.hexdigest()


def fitted_files(directory: str) -> Iterator[str]:
    """Yield the files of a fitted function in order, as posix paths relative to its directory."""
    for top in FITTED:
        for base, directories, files in os.walk(os.path.join(directory, top)):
            directories.sort()
            for name in sorted(files):
                yield os.path.relpath(os.path.join(base, name), directory).replace(os.sep, "/")


def fitted_of(rows: Any) -> str | None:
    """Return the directory of the fitted function that a PCollection went through, if any."""
    return getattr(rows, "beam_tfrecord_fitted", None)
