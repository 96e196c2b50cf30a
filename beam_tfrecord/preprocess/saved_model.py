"""A SavedModel made repeatable: equal functions, equal bytes.

TensorFlow numbers the functions inside by a counter of the process, TFT names tables by the path of
a temporary directory, and a fingerprint is taken of both. Here functions are numbered anew, in the
order in which they were made, paths are cut to the name of the file, and the fingerprint, which no
reader needs, is left out. TensorFlow's version stays inside, so another one makes other bytes.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

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
