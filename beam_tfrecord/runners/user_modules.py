"""The user's own modules that workers elsewhere need besides this package."""

from __future__ import annotations

import os
import sys
from typing import Any

from beam_tfrecord.user_function import MapFunction


def modules_of(settings: Any) -> tuple[str, ...]:
    """Return the names of the user's top-level modules that a job's functions need.

    These are the modules of the map and of the preprocessing function, unless their text travels
    with them, and what was imported from the same directory: such a file may import its neighbours.

    Args:
        settings: Of the job.
    """
    preprocessing = getattr(getattr(settings, "transform", None), "function", None)
    functions = (getattr(settings, "map", None), preprocessing)
    needed = [_needed_by(one) for one in functions if isinstance(one, MapFunction)]
    return tuple(sorted(set().union(*needed)))


def _needed_by(function: MapFunction) -> set[str]:
    if function.file is not None:
        return _loaded_from(os.path.dirname(function.file[0]))
    name = getattr(function.function, "__module__", None) or type(function.function).__module__
    top = name.partition(".")[0]
    return set() if top == "__main__" else {top, *_loaded_from(_place_of(top))}


def _place_of(top: str) -> str:
    """Return the directory that holds a top-level module; empty where there is none."""
    path = getattr(sys.modules.get(top), "__file__", None)
    if not isinstance(path, str):
        return ""
    inside = os.path.basename(path) == "__init__.py"
    return os.path.dirname(os.path.dirname(path) if inside else path)


def _loaded_from(directory: str) -> set[str]:
    """Return the names of loaded top-level modules that lie in a directory."""
    return {
        name
        for name in list(sys.modules)
        # Those that the package itself makes of the text of a file travel as that text.
        if directory
        and "." not in name
        and not name.startswith(("__", "_beam_tfrecord_map_"))
        and _place_of(name) == directory
    }
