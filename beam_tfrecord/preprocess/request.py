"""What a user asks for: steps, a function of their own, or one that was fitted before."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import re
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.extras import require
from beam_tfrecord.preprocess import operations
from beam_tfrecord.preprocess.fitted import (
    FITTED,
    Notes,
    bound_ports,
    check_fitted,
    load_notes,
    output_names,
)
from beam_tfrecord.preprocess.operations import Column
from beam_tfrecord.preprocess.steps import (
    Step,
    by_column,
    check_steps,
    dropped,
    load_steps,
    matrix_sha256,
    parse_step,
    steps_from_json,
)
from beam_tfrecord.preprocess.tensor_columns import FLOAT32, FLOAT64, STRING, Port, ports_of
from beam_tfrecord.transforms.mapping import MapFunction, load_map

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


PLAIN_OUTPUTS = ("float32", "int64", "string")


@dataclasses.dataclass(frozen=True)
class Function:
    """A preprocessing function for TFT, from steps.

    Attributes:
        steps: The steps.
        ports: The inputs; those that no step names pass unchanged.
    """

    steps: tuple[Step, ...]
    ports: tuple[Port, ...]

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the transformed columns, and the others as they are written."""
        chains = by_column(self.steps)
        return {
            port.name: _output(inputs[port.name])
            if port.name not in chains
            else _transformed(inputs[port.name], _file_name(port.name, i), chains[port.name])
            for i, port in enumerate(self.ports)
        }


@dataclasses.dataclass(frozen=True)
class UserFunction:
    """A user's preprocessing function, whose outputs get the types that an Example holds.

    Attributes:
        function: From tensors by name to tensors by name.
        outputs: Names of what it returned when it was traced last.
        unchanged: Those that are inputs of the same name as they were.
    """

    function: Callable[[dict[str, Any]], Mapping[str, Any]]
    outputs: set[str] = dataclasses.field(default_factory=set)
    unchanged: set[str] = dataclasses.field(default_factory=set)

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return its outputs as int64, float32 or string.

        Raises:
            UsageError: It raises, or returns no dict of tensors.
        """
        try:
            returned = self.function(dict(inputs))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            # The place in the user's own code, not where a library found fault with it.
            own = [frame for frame in frames if "site-packages" not in frame.filename]
            where = (own or frames)[-1]
            raise UsageError(
                f"the preprocessing function raised {type(error).__name__}: {error} "
                f"({where.filename}:{where.lineno})"
            ) from error
        if not isinstance(returned, Mapping) or not returned:
            raise UsageError(
                f"the preprocessing function returned {returned!r:.60}: give tensors by name"
            )
        self.outputs.update(returned)
        self.unchanged.update(name for name in returned if returned[name] is inputs.get(name))
        return {name: _output(value) for name, value in returned.items()}


def _output(tensor: Any) -> Any:
    """Return a tensor in a type that an Example holds."""
    import tensorflow as tf

    if tensor.dtype.name in PLAIN_OUTPUTS:
        return tensor
    return tf.cast(tensor, tf.float32 if tensor.dtype.is_floating else tf.int64)


def _file_name(column: str, position: int) -> str:
    """Return the name of a column's vocabulary: its own where TensorFlow takes it as a name."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", column):
        return column
    return f"column_{position}_{re.sub(r'[^A-Za-z0-9_.-]', '_', column)}"


def _transformed(tensor: Any, name: str, steps: Sequence[Step]) -> Any:
    column = Column(tensor)
    files = 0
    for step in steps:
        # Two steps of one column that make a vocabulary each need a file each.
        file = name if not files else f"{name}_{files + 1}"
        column = _STEPS[step.op](column, step.options, file)
        files += step.op in ("vocabulary", "one_hot")
    return _output(column.tensor)


_STEPS: dict[str, Callable[[Column, Mapping[str, Any], str], Column]] = {
    "impute": operations.impute,
    "zscore": operations.zscore,
    "minmax": operations.minmax,
    "bucketize": operations.bucketize,
    "one_hot": operations.one_hot,
    "vocabulary": operations.vocabulary,
    "embed": operations.embed,
    "hash": operations.hash_buckets,
    "clip": operations.clip,
    "log1p": operations.log1p,
}


def trace(function: UserFunction, ports: Sequence[Port]) -> None:
    """Call a user's function as TFT will, on tensors without values.

    Raises:
        UsageError: It raises.
    """
    import tensorflow as tf
    from tensorflow_transform import impl_helper

    specs = {
        port.name: tf.TensorSpec([None], port.dtype)
        if port.is_dense
        else tf.SparseTensorSpec([None, None], port.dtype)
        for port in ports
    }
    # Vocabularies leave files where they will be, long before they are made.
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-") as place:
        impl_helper.trace_preprocessing_function(function, specs, False, place)


def used_columns(steps: Sequence[Step]) -> frozenset[str]:
    """Return the columns whose values TensorFlow has to see."""
    return frozenset(by_column(steps))


def text_columns(steps: Sequence[Step]) -> frozenset[str]:
    """Return the columns that are text, or may be, where no row has a value to tell."""
    ops = ("vocabulary", "one_hot", "hash")
    return frozenset(
        name
        for name, chain in by_column(steps).items()
        if chain[0].op in ops or isinstance(chain[0].options.get("value"), str)
    )


_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What workers need to know to fit a function, and to apply it.

    Attributes:
        notes: Of the function.
        function: What TFT traces; None for a function that was fitted before.
        fitted: Directory of that one.
        analysed: Columns that statistics are made of.
        fit: Split whose rows they are made of.
        raw_too: Keep raw values too.
    """

    notes: Notes
    function: Callable[..., Any] | None
    fitted: str | None
    analysed: frozenset[str]
    fit: str
    raw_too: bool

    def finished_notes(self) -> Notes:
        """Return the notes with what tracing showed of a user's function."""
        function = self.function
        if not isinstance(function, UserFunction):
            return self.notes
        return dataclasses.replace(
            self.notes,
            outputs=tuple(sorted(function.outputs)),
            unchanged=frozenset(function.unchanged),
        )


def make_plan(request: Request, schema: pa.Schema) -> Plan:
    """Return the plan for rows of a schema.

    Raises:
        UsageError: The steps, or the function, do not fit the columns.
    """
    if request.fitted is not None:
        notes = load_notes(request.fitted)
        ports = bound_ports(notes.ports, schema)
        return _plan(request, dataclasses.replace(notes, ports=ports), None, ())
    if request.function is not None:
        function = UserFunction(request.function)
        ports = _traced_ports(function, ports_of(schema))
        return _plan(request, Notes(ports), function, [port.name for port in ports])
    check_steps(request.steps, schema)
    ports = ports_of(schema, text=text_columns(request.steps))
    used = used_columns(request.steps)
    names = {port.name for port in ports}
    notes = Notes(
        ports,
        outputs=tuple(port.name for port in ports),
        unchanged=frozenset(names - used),
        scalars=frozenset(port.name for port in ports if not port.is_list),
        text=frozenset(
            port.name
            for port in ports
            if port.dtype == STRING and not pa.types.is_binary(schema.field(port.name).type)
        ),
        drop=dropped(request.steps),
        keeps_rest=True,
        steps=tuple(step.to_json() for step in request.steps),
    )
    output_names(notes, schema.names, notes.outputs or (), request.raw_too)
    return _plan(request, notes, Function(request.steps, ports), used)


def _traced_ports(function: UserFunction, ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """Return the ports with numbers as a user's function takes them.

    Most functions take float64, which keeps times and amounts exact; some bring float32 of their
    own to it, which TensorFlow does not mix, and are given float32.

    Raises:
        UsageError: The function raises with both, or there is nothing it could take.
    """
    if not ports:
        raise UsageError("no column is of a type that TensorFlow takes: leave out transform")
    try:
        trace(function, ports)
    except UsageError as error:
        narrow = tuple(
            dataclasses.replace(port, dtype=FLOAT32) if port.dtype == FLOAT64 else port
            for port in ports
        )
        if narrow == ports or "float32" not in str(error):
            raise
        trace(function, narrow)
        _LOGGER.warning(
            "the preprocessing function takes float32 alone: numbers are rounded to it before "
            "statistics are made"
        )
        return narrow
    return ports


def _plan(
    request: Request,
    notes: Notes,
    function: Callable[..., Any] | None,
    analysed: Iterable[str],
) -> Plan:
    return Plan(notes, function, request.fitted, frozenset(analysed), request.fit, request.raw_too)
