"""The fitted function on disk, and applied to batches.

It is a directory as TFT writes it: ``transform_fn/``, a SavedModel with its vocabularies, and
``transformed_metadata/`` and ``metadata/``, the types of what comes out and of what goes in;
`tensorflow_transform.TFTransformOutput` opens it. What TFT has no place for, such as the columns
that pass unchanged, is kept with the SavedModel in ``assets.extra/``, which TensorFlow leaves to
its users.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.preprocess.steps import EMPTY, TEXT, kind_of
from beam_tfrecord.preprocess.tensor_columns import (
    STRING,
    Port,
    column_of,
    raw_schema_pbtxt,
    tensors,
)

TRANSFORM_FN = "transform_fn"
TRANSFORMED_METADATA = "transformed_metadata"
RAW_METADATA = "metadata"
FITTED = (TRANSFORM_FN, TRANSFORMED_METADATA, RAW_METADATA)
RAW_SUFFIX = "_raw"
_NOTES = os.path.join(TRANSFORM_FN, "assets.extra", "beam_tfrecord.json")


@dataclasses.dataclass(frozen=True)
class Notes:
    """What there is to know of a fitted function besides its graph.

    Attributes:
        ports: Its inputs.
        outputs: What it gives; None: all that the graph has.
        unchanged: Outputs that are the raw columns, which need not go through TensorFlow.
        scalars: Outputs with at most one value a row.
        text: Outputs that are UTF-8 text.
        drop: Columns whose rows without a value are dropped before.
        keeps_rest: Whether columns that it does not know pass beside it.
        steps: The steps it was made from, as JSON objects.
    """

    ports: tuple[Port, ...]
    outputs: tuple[str, ...] | None = None
    unchanged: frozenset[str] = frozenset()
    scalars: frozenset[str] = frozenset()
    text: frozenset[str] = frozenset()
    drop: tuple[str, ...] = ()
    keeps_rest: bool = False
    steps: tuple[Any, ...] = ()

    def dumps(self) -> str:
        """Return JSON text."""
        value = dataclasses.asdict(self)
        return json.dumps(value, default=sorted, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def loads(cls, text: str) -> Notes:
        """Read what `dumps` wrote."""
        value = json.loads(text)
        outputs = value["outputs"]
        return cls(
            ports=tuple(Port(**port) for port in value["ports"]),
            outputs=None if outputs is None else tuple(outputs),
            drop=tuple(value["drop"]),
            keeps_rest=value["keeps_rest"],
            steps=tuple(value["steps"]),
            **{name: frozenset(value[name]) for name in ("unchanged", "scalars", "text")},
        )


def check_fitted(directory: str) -> None:
    """Check that a directory holds a fitted function.

    Raises:
        UsageError: It does not.
    """
    if not os.path.isfile(os.path.join(directory, TRANSFORM_FN, "saved_model.pb")):
        raise UsageError(
            f"there is no {TRANSFORM_FN}/saved_model.pb in {directory!r}: give the dataset that "
            "the function was fitted for, or the output of TFX's Transform"
        )


def save_notes(directory: str, notes: Notes) -> None:
    """Write the notes of a fitted function beside it."""
    path = os.path.join(directory, _NOTES)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(notes.dumps())


def save_raw_schema(directory: str, notes: Notes) -> None:
    """Write the schema of the inputs of a fitted function where `TFTransformOutput` looks."""
    path = os.path.join(directory, RAW_METADATA, "schema.pbtxt")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(raw_schema_pbtxt(notes.ports))


def load_notes(directory: str) -> Notes:
    """Return the notes of a fitted function; of one that others made, what its graph tells."""
    try:
        with open(os.path.join(directory, _NOTES), encoding="utf-8") as file:
            return Notes.loads(file.read())
    except FileNotFoundError:
        return Notes(_ports_of_graph(os.path.join(directory, TRANSFORM_FN)))


def _ports_of_graph(directory: str) -> tuple[Port, ...]:
    import tensorflow as tf

    (inputs,) = tf.saved_model.load(directory).transform_fn.structured_input_signature[0]
    return tuple(
        Port(name, spec.dtype.name, is_dense=not isinstance(spec, tf.SparseTensorSpec))
        for name, spec in sorted(inputs.items())
    )


def bound_ports(ports: Sequence[Port], schema: pa.Schema) -> tuple[Port, ...]:
    """Return the ports of a saved function as they are found in columns of `schema`.

    Raises:
        UsageError: A column is missing, or of another kind.
    """
    bound = []
    for port in ports:
        if port.name not in schema.names:
            raise UsageError(
                f"the saved function takes column {port.name!r}, which is not there: "
                f"the columns are {', '.join(schema.names)}"
            )
        kind, is_list = kind_of(schema.field(port.name).type)
        if kind != EMPTY and (kind == TEXT) != (port.dtype == STRING):
            raise UsageError(
                f"column {port.name!r} is {schema.field(port.name).type} but the saved function "
                f"takes {port.dtype}: fit it anew, or convert the column first"
            )
        bound.append(dataclasses.replace(port, is_list=is_list))
    return tuple(bound)


def check_unchanged(notes: Notes, columns: Sequence[str]) -> None:
    """Check that the columns that decide the order pass the function as they are.

    Raises:
        UsageError: One does not.
    """
    known = {port.name for port in notes.ports}
    for name in columns:
        is_beside = notes.keeps_rest and name not in known
        if name not in notes.unchanged and not is_beside:
            raise UsageError(
                f"key column {name!r} is changed by preprocessing: choose another key, or keep it "
                "as it is"
            )


class Fitted:
    """A fitted function, loaded; imports TensorFlow.

    Args:
        directory: Where it is.
        notes: Of this function, with ports that fit the rows.
        raw_too: Keep the raw values of what it changes, under the name with `RAW_SUFFIX`.
    """

    def __init__(self, directory: str, notes: Notes, *, raw_too: bool = False) -> None:
        from tensorflow_transform.saved import saved_transform_io_v2

        path = os.path.join(directory, TRANSFORM_FN)
        self._loader = saved_transform_io_v2.SavedModelLoader(path)
        self._notes = notes
        self._raw_too = raw_too
        known = notes.outputs or tuple(sorted(self._loader.structured_outputs))
        self._computed = [name for name in known if name not in notes.unchanged]
        self._outputs = known
        self._ports = [port for port in notes.ports if port.name not in self._idle()]
        self._loader.finalize([port.name for port in self._ports], self._computed)

    def _idle(self) -> frozenset[str]:
        """Return the inputs that nothing computed is made from, where that is known."""
        return self._notes.unchanged if self._notes.keeps_rest else frozenset()

    def apply(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Return the transformed rows, in the same order.

        Raises:
            DataError: TensorFlow refuses them.
        """
        import tensorflow as tf

        found: dict[str, Any] = {}
        if self._computed:
            try:
                found = self._loader.apply_transform_model(tensors(data, self._ports))
            except (tf.errors.OpError, ValueError) as error:
                line = str(error).splitlines()[0]
                raise DataError(
                    f"the preprocessing function failed on some rows: {line}"
                ) from error
        names = output_names(self._notes, data.schema.names, self._outputs, self._raw_too)
        fields, arrays = [], []
        for name, origin in names:
            if origin is not None:
                field = data.schema.field(origin).with_name(name)
                array = data.column(origin)
            else:
                array = self._column(name, found[name])
                field = pa.field(name, array.type, nullable=hasattr(found[name], "dense_shape"))
            fields.append(field)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _column(self, name: str, tensor: Any) -> pa.Array:
        array = column_of(tensor, is_scalar=name in self._notes.scalars)
        is_text = name in self._notes.text and pa.types.is_large_binary(array.type)
        return array.cast(pa.large_string()) if is_text else array


def output_names(
    notes: Notes, raw: Sequence[str], outputs: Sequence[str], raw_too: bool
) -> list[tuple[str, str | None]]:
    """Return the columns of transformed rows, each with the raw column that it is, if any.

    Raises:
        UsageError: A raw column's new name is taken.
    """
    kept = [name for name in raw if name in outputs or notes.keeps_rest]
    names: list[tuple[str, str | None]] = [
        (name, None if name in outputs and name not in notes.unchanged else name) for name in kept
    ]
    names += [(name, None) for name in sorted(outputs) if name not in raw]
    if raw_too:
        changed = {name for name, origin in names if origin is None}
        names += [(name + RAW_SUFFIX, name) for name in raw if name in changed]
        names += [(name, name) for name in raw if name not in kept]
    seen: set[str] = set()
    for name, _ in names:
        if name in seen:
            raise UsageError(f"two columns would be named {name!r}: rename one of them before")
        seen.add(name)
    return names


_NUMBERED = re.compile(
    r"(__(?:inference|forward|backward)_.*|.*cond_(?:true|false)|.*while_(?:cond|body))_(\d+)"
)
_TEMPORARY_PATH = re.compile(rb"b(['\"]).*/([^/]*)\1")
# Of a tensor that a function has captured it is a number of the process.
_NAME_ATTRIBUTE = "_user_specified_name"
_MODEL = "saved_model.pb"
_FINGERPRINT = "fingerprint.pb"


def copy_repeatable(source: str, destination: str) -> None:
    """Copy the directory of a SavedModel, its bytes made independent of process and paths."""
    from tensorflow.core.protobuf import saved_model_pb2

    leave_out = shutil.ignore_patterns(_FINGERPRINT, ".*")
    shutil.copytree(source, destination, ignore=leave_out, dirs_exist_ok=True)
    path = os.path.join(destination, _MODEL)
    with open(path, "rb") as file:
        model = saved_model_pb2.SavedModel.FromString(file.read())
    for graph in model.meta_graphs:
        _number_functions(graph)
    with open(path, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))


def _number_functions(graph: Any) -> None:
    library = graph.graph_def.library
    names = _new_names(function.signature.name for function in library.function)

    def renamed(text: str | bytes) -> str | bytes:
        if isinstance(text, str):
            return names.get(text, text)
        if text.startswith(b"hash_table_"):
            return _TEMPORARY_PATH.sub(rb"b\1\2\1", text)
        return text

    _rewrite(graph, renamed)
    functions = sorted(library.function, key=lambda function: function.signature.name)
    copies = [type(function).FromString(function.SerializeToString()) for function in functions]
    del library.function[:]
    library.function.extend(copies)


def _new_names(names: Iterable[str]) -> dict[str, str]:
    """Return functions' names numbered from 0 by kind, in the order of their numbers."""
    numbers = defaultdict(list)
    for name in names:
        if match := _NUMBERED.fullmatch(name):
            numbers[match[1]].append(int(match[2]))
    return {
        f"{kind}_{number}": f"{kind}_{rank}"
        for kind, of_kind in numbers.items()
        for rank, number in enumerate(sorted(of_kind))
    }


def _rewrite(message: Any, renamed: Callable[[str | bytes], str | bytes]) -> None:
    """Replace every text in a protobuf message, those of messages inside and of maps' keys too."""
    for field, value in message.ListFields():
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            _rewrite_map(value, entry.fields_by_name["value"], renamed)
        elif entry is not None:
            for one in value if _is_repeated(value) else [value]:
                _rewrite(one, renamed)
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            if _is_repeated(value):
                value[:] = [renamed(one) for one in value]
            else:
                setattr(message, field.name, renamed(value))


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "append") or hasattr(value, "add")


def _rewrite_map(
    entries: Any, of_values: Any, renamed: Callable[[str | bytes], str | bytes]
) -> None:
    for key in list(entries):
        new = renamed(key) if isinstance(key, str) else key
        if of_values.message_type is not None:
            if key == _NAME_ATTRIBUTE and entries[key].s.isdigit():
                entries[key].s = b""
            _rewrite(entries[key], renamed)
            if new != key:
                entries[new].CopyFrom(entries[key])
                del entries[key]
            continue
        value = entries.pop(key)
        entries[new] = renamed(value) if isinstance(value, str | bytes) else value
