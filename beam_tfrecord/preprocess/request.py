"""Makes a `Request` of a user's preprocessing arguments, and plans it for the input's columns.

A plan is a `Description` of the preprocessing function, and the function for tensorflow-transform
(TFT). A *fitted* function is one that has its statistics already.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import os
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.arguments import as_words
from beam_tfrecord.base.extras import import_tensorflow, require
from beam_tfrecord.errors import UsageError
from beam_tfrecord.format.manifest import fitted_files
from beam_tfrecord.preprocess.fitted import (
    COUNTING,
    Description,
    check_fitted,
    load_description,
    vocabulary_file,
)
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
from beam_tfrecord.preprocess.tft_conversion import (
    FLOAT32,
    FLOAT64,
    STRING,
    TensorColumn,
    tensor_columns,
)
from beam_tfrecord.rows.user_function import MapFunction, load_map

TFTFunction = Callable[[Mapping[str, Any]], dict[str, Any]]
Transform = str | os.PathLike[str] | Callable[..., Any] | Sequence[Step | Mapping[str, Any]]

TRAIN = "train"
# Types that a tf.train.Example can hold.
_EXAMPLE_DTYPES = ("float32", "int64", "string")
_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Request:
    """A user's request to preprocess rows: by steps, a function, or a fitted function.

    Exactly one of the first three attributes is set.
    """

    steps: tuple[Step, ...] = ()
    function: MapFunction | None = None
    fitted: str | None = None
    fit: str = TRAIN
    raw_too: bool = False

    def identity(self) -> dict[str, Any]:
        """Return values that decide the output: equal values mean equal preprocessing."""
        common: dict[str, Any] = {"fit": self.fit, "raw_too": self.raw_too}
        if self.fitted is not None:
            return {**common, "fitted": _tree_sha256(self.fitted)}
        if self.function is not None:
            return {**common, "function": self.function}
        steps = [step.to_json() for step in self.steps]
        for step in steps:
            if "matrix" in step:
                step["matrix"] = matrix_sha256(step["matrix"])
        return {**common, "steps": steps}


def make_request(
    transform: Transform | None,
    *,
    step: Sequence[str] = (),
    transform_fn: str | os.PathLike[str] | None = None,
    fit: str = TRAIN,
    raw_too: bool = False,
) -> Request | None:
    """Return the request in arguments of `write`, or None if they ask for no preprocessing."""
    if transform is None and transform_fn is None and not step:
        if raw_too or fit != TRAIN:
            raise UsageError("there is nothing to preprocess: pass --transform or --step")
        return None
    typed = tuple(parse_step(text) for text in as_words("step", step))
    require("transform", "preprocessing")
    if transform_fn is not None:
        if transform is not None or typed:
            raise UsageError(
                "a fitted function has its steps already: leave out --transform and --step"
            )
        directory = os.path.abspath(os.fspath(transform_fn))
        check_fitted(directory)
        return Request(fitted=directory, fit=fit, raw_too=raw_too)
    if callable(transform) or (isinstance(transform, str) and _names_function(transform)):
        if typed:
            raise UsageError("a preprocessing function replaces all steps: leave out the steps")
        # The module of the function imports it, too.
        import_tensorflow()
        return Request(function=load_map(transform), fit=fit, raw_too=raw_too)
    if isinstance(transform, str | os.PathLike):
        steps = load_steps(os.fspath(transform))
    else:
        steps = steps_from_json(transform or ())
    return Request(steps=(*steps, *typed), fit=fit, raw_too=raw_too)


def _names_function(text: str) -> bool:
    module, colon, name = text.rpartition(":")
    return bool(colon and module and name.isidentifier() and not text.endswith(".json"))


def _tree_sha256(directory: str) -> str:
    """Return the SHA-256 of the files of a fitted function, with their names.

    The statistics are nowhere but in the model, so a function that is fitted again is another one.
    """
    digest = hashlib.sha256()
    for path in fitted_files(directory):
        digest.update(path.encode() + b"\0")
        with open(os.path.join(directory, path), "rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def make_plan(request: Request, schema: pa.Schema) -> tuple[Description, TFTFunction | None]:
    """Return the plan of a request for the columns of the input."""
    if request.fitted is not None:
        return load_description(request.fitted).bound_to(schema), None
    if request.function is not None:
        function = request.function
        return _traced(function, tensor_columns(schema)), functools.partial(_by_function, function)
    check_steps(request.steps, schema)
    chains = by_column(request.steps)
    inputs = tensor_columns(schema, text=_text_columns(chains))
    names = [column.name for column in inputs]
    description = Description(
        inputs,
        outputs=tuple(names),
        unchanged=frozenset(names) - frozenset(chains),
        scalars=frozenset(column.name for column in inputs if not column.is_list),
        text=frozenset(
            column.name
            for column in inputs
            if column.dtype == STRING and not pa.types.is_binary(schema.field(column.name).type)
        ),
        drop=dropped(request.steps),
        keeps_rest=True,
        steps=tuple(step.to_json() for step in request.steps),
    )
    # Raises if two columns would have the same name.
    description.output_columns(schema.names, names, request.raw_too)
    return description, functools.partial(_by_steps, chains, names)


def _text_columns(chains: Mapping[str, Sequence[Step]]) -> frozenset[str]:
    """Return the columns whose first step makes them text if no row has a value."""
    ops = ("vocabulary", "one_hot", "hash")
    return frozenset(
        name
        for name, (first, *_) in chains.items()
        if first.op in ops or isinstance(first.options.get("value"), str)
    )


def _by_steps(
    chains: Mapping[str, Sequence[Step]], columns: Sequence[str], inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all columns in types that an Example can hold, after the steps of each."""
    outputs = {}
    for i, column in enumerate(columns):
        tensor = inputs[column]
        if column in chains:
            tensor = _transformed(tensor, column, i, chains[column])
        outputs[column] = _as_example_type(tensor)
    return outputs


def _transformed(tensor: Any, name: str, position: int, steps: Sequence[Step]) -> Any:
    from beam_tfrecord.preprocess.operations import OPERATIONS, StepColumn

    column = StepColumn(tensor)
    number = 1
    for step in steps:
        # Each vocabulary of a column needs a file of its own.
        file = vocabulary_file(name, position, number)
        column = OPERATIONS[step.op](column, step.options, file)
        number += step.op in COUNTING
    return column.tensor


def _as_example_type(tensor: Any) -> Any:
    import tensorflow as tf

    if tensor.dtype.name in _EXAMPLE_DTYPES:
        return tensor
    return tf.cast(tensor, tf.float32 if tensor.dtype.is_floating else tf.int64)


def _by_function(function: MapFunction, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a user's function, in types that an Example can hold."""
    returned = _returned(function, inputs)
    return {name: _as_example_type(value) for name, value in returned.items()}


def _returned(function: MapFunction, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call a user's function, and return its outputs by name."""
    try:
        returned = function(dict(inputs))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        # The last line of the user's own code, not the line of the library that raised.
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
    return returned


def _traced(function: MapFunction, inputs: tuple[TensorColumn, ...]) -> Description:
    """Return the description of a user's function, which is found by tracing it.

    Most functions accept floats as float64, which has enough digits for times and amounts. Some
    combine inputs with float32 tensors of their own, which TensorFlow does not mix with float64.
    These functions get float32.
    """
    if not inputs:
        raise UsageError("no column has a type that TensorFlow supports: leave out --transform")
    try:
        return _description(function, inputs)
    except UsageError as error:
        narrow = tuple(
            dataclasses.replace(column, dtype=FLOAT32) if column.dtype == FLOAT64 else column
            for column in inputs
        )
        if narrow == inputs or "float32" not in error.message:
            raise
        description = _description(function, narrow)
        _LOGGER.warning(
            "the preprocessing function takes only float32: numbers are rounded to it before "
            "statistics are made"
        )
        return description


def _description(function: MapFunction, inputs: tuple[TensorColumn, ...]) -> Description:
    """Trace a user's function as TFT does, on tensors without values; return its description."""
    import tensorflow as tf
    from tensorflow_transform import impl_helper

    outputs: set[str] = set()
    unchanged: set[str] = set()

    def observed(tensors: Mapping[str, Any]) -> dict[str, Any]:
        returned = _returned(function, tensors)
        outputs.update(returned)
        unchanged.update(name for name in returned if returned[name] is tensors.get(name))
        return {name: _as_example_type(value) for name, value in returned.items()}

    specs = {
        column.name: tf.TensorSpec([None], column.dtype)
        if column.is_dense
        else tf.SparseTensorSpec([None, None], column.dtype)
        for column in inputs
    }
    # Tracing writes placeholder files of vocabularies, which are removed with the directory.
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-") as directory:
        impl_helper.trace_preprocessing_function(observed, specs, False, directory)
    return Description(inputs, tuple(sorted(outputs)), frozenset(unchanged))
