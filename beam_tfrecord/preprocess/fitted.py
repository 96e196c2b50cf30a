"""Saves, loads and applies a fitted function: preprocessing steps with their statistics.

A fitted function is a directory in the format of tensorflow-transform (TFT), which
`tensorflow_transform.TFTransformOutput` opens: ``transform_fn/`` is a SavedModel with vocabularies,
``transformed_metadata/`` has the types of the outputs, and ``metadata/`` the types of the inputs.
TFT's format lacks some facts, such as the columns that pass unchanged. They are stored in the
SavedModel's ``assets.extra/``, which TensorFlow leaves to its users. Its vocabularies give the
categories that columns of numbers stand for.

Examples hold float32, and TFT's layer for serving gives nothing else. So the saved function takes
float32, and converts it where the function was fitted to float64. A job gives it exact values in
place of the results of these conversions.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.format.manifest import (
    CATEGORIES_FILE,
    RAW_METADATA,
    TRANSFORM_FN,
    TRANSFORMED_METADATA,
)
from beam_tfrecord.preprocess.steps import EMPTY, TEXT, kind_of
from beam_tfrecord.preprocess.tft_conversion import (
    FLOAT32,
    FLOAT64,
    STRING,
    TensorColumn,
    adapter_config,
    arrow_column,
    raw_schema_pbtxt,
    tensors,
)

RAW_SUFFIX = "_raw"
_DESCRIPTION = os.path.join(TRANSFORM_FN, "assets.extra", "beam_tfrecord.json")


@dataclasses.dataclass(frozen=True)
class Description:
    """A description of a fitted function, with facts that its graph does not show."""

    inputs: tuple[TensorColumn, ...]
    outputs: tuple[str, ...] | None = None
    unchanged: frozenset[str] = frozenset()
    scalars: frozenset[str] = frozenset()
    text: frozenset[str] = frozenset()
    drop: tuple[str, ...] = ()
    keeps_rest: bool = False
    steps: tuple[Any, ...] = ()

    def dumps(self) -> str:
        """Return the JSON of the description, which ends with a newline."""
        text = msgspec.json.encode(self, order="deterministic")
        return msgspec.json.format(text, indent=1).decode() + "\n"

    @classmethod
    def loads(cls, text: str) -> Description:
        """Return the description that `dumps` made a text of."""
        return msgspec.json.decode(text, type=cls)

    @property
    def used(self) -> frozenset[str]:
        """Names of the inputs that computed outputs may depend on."""
        # A function made from steps computes nothing from unchanged inputs; a user's own may.
        idle = self.unchanged if self.keeps_rest else frozenset()
        return frozenset(column.name for column in self.inputs) - idle

    def bound_to(self, schema: pa.Schema) -> Description:
        """Return the description with its inputs adapted to the columns of a schema."""
        bound = []
        for column in self.inputs:
            if column.name not in schema.names:
                raise UsageError(
                    f"the saved function takes column {column.name!r}, which is not there: "
                    f"the columns are {', '.join(schema.names)}"
                )
            arrow = schema.field(column.name).type
            kind, is_list = kind_of(arrow)
            if kind != EMPTY and (kind == TEXT) != (column.dtype == STRING):
                raise UsageError(
                    f"column {column.name!r} is {arrow} but the saved function takes "
                    f"{column.dtype}: fit it again, or convert the column first"
                )
            bound.append(dataclasses.replace(column, is_list=is_list))
        return dataclasses.replace(self, inputs=tuple(bound))

    def check_unchanged(self, columns: Sequence[str]) -> None:
        """Check that the function changes none of some columns: those that decide the order."""
        inputs = {column.name for column in self.inputs}
        for name in columns:
            passes_beside = self.keeps_rest and name not in inputs
            if name not in self.unchanged and not passes_beside:
                raise UsageError(
                    f"key column {name!r} is changed by preprocessing: choose another key, or "
                    "keep it as it is"
                )

    def output_columns(
        self, raw: Sequence[str], outputs: Sequence[str], raw_too: bool
    ) -> list[tuple[str, str | None]]:
        """Return the names of the columns of transformed rows, in order.

        Each name comes with that of the raw column that it equals; None if the column is computed.
        """
        kept = [name for name in raw if name in outputs or self.keeps_rest]
        columns: list[tuple[str, str | None]] = [
            (name, None if name in outputs and name not in self.unchanged else name)
            for name in kept
        ]
        columns += [(name, None) for name in sorted(outputs) if name not in raw]
        if raw_too:
            changed = {name for name, origin in columns if origin is None}
            columns += [(name + RAW_SUFFIX, name) for name in raw if name in changed]
            columns += [(name, name) for name in raw if name not in kept]
        seen: set[str] = set()
        for name, _ in columns:
            if name in seen:
                raise UsageError(f"two columns would be named {name!r}: rename one of them before")
            seen.add(name)
        return columns


def check_fitted(directory: str) -> None:
    """Check that a directory holds a fitted function."""
    if not os.path.isfile(os.path.join(directory, TRANSFORM_FN, "saved_model.pb")):
        raise UsageError(
            f"there is no {TRANSFORM_FN}/saved_model.pb in {directory!r}: give the dataset that "
            "the function was fitted for, or the output of TFX's Transform"
        )


def save_fitted(source: str, directory: str, description: Description) -> None:
    """Write a fitted function in the form in which datasets have it: with its description.

    TensorFlow names parts of the model by counters and temporary paths, so equal functions may have
    other bytes. ``fingerprint.pb`` is left out: it has a random number, and no reader needs it.
    """
    import tensorflow as tf

    metadata = os.path.join(directory, TRANSFORMED_METADATA)
    shutil.copytree(os.path.join(source, TRANSFORMED_METADATA), metadata)
    model = os.path.join(directory, TRANSFORM_FN)
    loaded = tf.saved_model.load(os.path.join(source, TRANSFORM_FN))
    types = {one.name: one.dtype.replace(FLOAT64, FLOAT32) for one in description.inputs}
    loaded.transform_fn = _with_types(loaded.transform_fn, types)
    tf.saved_model.save(loaded, model)
    os.remove(os.path.join(model, "fingerprint.pb"))
    schema = os.path.join(directory, RAW_METADATA, "schema.pbtxt")
    _write_text(schema, raw_schema_pbtxt(description.inputs))
    _write_text(os.path.join(directory, _DESCRIPTION), description.dumps())


def _with_types(function: Any, dtypes: Mapping[str, str], outputs: Sequence[str] = ()) -> Any:
    """Return a loaded function that takes other types of floats, with some outputs or all.

    Its operations are copied: TFT follows them to the inputs of each output, but not into calls.
    """
    import tensorflow as tf

    flat = functools.partial(tf.nest.flatten, expand_composites=True)
    packed = functools.partial(tf.nest.pack_sequence_as, expand_composites=True)
    graph, (specs,) = function.graph, function.structured_input_signature[0]
    symbols = packed(specs, function.inputs[: len(flat(specs))])
    found = packed(graph.structured_outputs, graph.outputs)
    wanted = {name: found[name] for name in outputs or found}

    def copied(inputs: Mapping[str, Any]) -> Any:
        feeds = {inner.name: tf.convert_to_tensor(outer) for outer, inner in graph.captures}
        given = {name: symbols[name] for name in inputs}
        for symbol, part in zip(flat(given), flat(inputs), strict=True):
            if symbol.dtype == tf.float32 and part.dtype == tf.float64:
                # The result of the conversion.
                (symbol,) = symbol.consumers()[0].outputs
            feeds[symbol.name] = tf.cast(part, symbol.dtype)
        names = [tensor.name for tensor in flat(wanted)]
        copies = tf.graph_util.import_graph_def(graph.as_graph_def(), feeds, names)
        for copy, tensor in zip(copies, flat(wanted), strict=True):
            copy.set_shape(tensor.shape)
        return packed(wanted, copies)

    typed = {name: type(specs[name])(specs[name].shape, dtypes[name]) for name in dtypes}
    return tf.function(copied, input_signature=[typed], autograph=False).get_concrete_function()


def _write_text(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def load_description(directory: str) -> Description:
    """Return the description of a fitted function, derived from the graph if it has no file."""
    try:
        with open(os.path.join(directory, _DESCRIPTION), encoding="utf-8") as file:
            return Description.loads(file.read())
    except FileNotFoundError:
        import tensorflow as tf

    saved = tf.saved_model.load(os.path.join(directory, TRANSFORM_FN))
    (inputs,) = saved.transform_fn.structured_input_signature[0]
    return Description(
        tuple(
            TensorColumn(name, spec.dtype.name, is_dense=not isinstance(spec, tf.SparseTensorSpec))
            for name, spec in sorted(inputs.items())
        )
    )


class Fitted:
    """A fitted function that is loaded to be applied to rows; making one imports TensorFlow."""

    def __init__(self, directory: str, description: Description, *, raw_too: bool = False) -> None:
        import tensorflow as tf
        from tfx_bsl.tfxio.tensor_adapter import TensorAdapter

        # It has the vocabularies, which live as long as it does.
        self._loaded = tf.saved_model.load(os.path.join(directory, TRANSFORM_FN))
        function = self._loaded.transform_fn
        self._description = description
        self._raw_too = raw_too
        self._outputs = description.outputs or tuple(sorted(function.structured_outputs))
        self._computed = [name for name in self._outputs if name not in description.unchanged]
        used = description.used
        self._inputs = [column for column in description.inputs if column.name in used]
        self._adapter = TensorAdapter(adapter_config(self._inputs))
        exact = {column.name: column.dtype for column in self._inputs}
        self._function = _with_types(function, exact, self._computed)

    def apply(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Return the transformed rows, in the same order."""
        import tensorflow as tf

        found: dict[str, Any] = {}
        if self._computed:
            try:
                inputs = tensors(data, self._inputs, self._adapter)
                found = self._function(inputs)
            except (tf.errors.OpError, ValueError) as error:
                line = str(error).splitlines()[0]
                raise DataError(
                    f"the preprocessing function failed on some rows: {line}"
                ) from error
        fields, arrays = [], []
        names = data.schema.names
        columns = self._description.output_columns(names, self._outputs, self._raw_too)
        for name, origin in columns:
            if origin is not None:
                field, array = data.schema.field(origin).with_name(name), data.column(origin)
            else:
                array = self._arrow_column(name, found[name])
                field = pa.field(name, array.type, nullable=hasattr(found[name], "dense_shape"))
            fields.append(field)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _arrow_column(self, name: str, tensor: Any) -> pa.Array:
        array = arrow_column(tensor, is_scalar=name in self._description.scalars)
        is_text = name in self._description.text and pa.types.is_large_binary(array.type)
        return array.cast(pa.large_string()) if is_text else array


# Larger vocabularies stay out of the schema, since every reader of a dataset parses it.
MAX_CATEGORIES = 10_000

# TFT writes this into a vocabulary file that would be empty, which TensorFlow cannot read.
NO_WORD = "49d0cd50-04bb-48c0-bc6f-5b575dce351a"

COUNTING = ("vocabulary", "one_hot")
_ESCAPED = re.compile(r"\\[nr\\]")
_PLAIN = {r"\n": "\n", r"\r": "\r", r"\\": "\\"}


def vocabulary_file(column: str, position: int, number: int = 1) -> str:
    """Return the name of a vocabulary file: that of the column if TensorFlow accepts it."""
    name = column
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", column):
        name = f"column_{position}_{re.sub(r'[^A-Za-z0-9_.-]', '_', column)}"
    return name if number == 1 else f"{name}_{number}"


def save_categories(
    directory: str, columns: Sequence[str], steps: Sequence[Mapping[str, Any]]
) -> None:
    """Write the categories of the columns of a fitted function into a file beside it.

    A column has categories if its last step is ``vocabulary`` or ``one_hot``; ``impute`` may
    follow. Vocabularies of more than `MAX_CATEGORIES`, and of bytes that are not text, are left
    out.
    """
    found = {}
    for position, name in enumerate(columns):
        ops = [step["op"] for step in steps if name in step["columns"]]
        while ops and ops[-1] == "impute":
            ops.pop()
        if ops and ops[-1] in COUNTING:
            number = sum(op in COUNTING for op in ops)
            words = vocabulary_file(name, position, number)
            if categories := _categories(os.path.join(directory, TRANSFORM_FN, "assets", words)):
                found[name] = categories
    with open(os.path.join(directory, CATEGORIES_FILE), "w", encoding="utf-8") as file:
        json.dump(found, file)


def _categories(path: str) -> list[str]:
    """Return the words of a vocabulary file, category 0 first; see the limits above."""
    with open(path, "rb") as file:
        lines = [line for line, _ in zip(file, range(MAX_CATEGORIES + 1), strict=False)]
    if len(lines) > MAX_CATEGORIES:
        return []
    try:
        words = b"".join(lines).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        return []
    return [] if words == [NO_WORD] else [_ESCAPED.sub(_plain, word) for word in words]


def _plain(escape: re.Match[str]) -> str:
    return _PLAIN[escape[0]]
