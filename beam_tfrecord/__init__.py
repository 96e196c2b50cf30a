"""The public API: turns tables, images, arrays and databases into TFRecord datasets with Beam.

`__init__.pyi` lists the public names. The first use of a name imports its module, so importing the
package itself is fast.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import logging
import os
import sys
from typing import Any

if sys.platform == "win32":
    raise ImportError("beam_tfrecord runs on Linux and macOS; on Windows, use it in WSL")
if not os.path.exists(f"{__path__[0]}/native/_index.abi3.so"):
    raise ImportError(
        f"{__path__[0]} is source code without its compiled kernel, and hides the installed "
        "package: run Python in another folder, or run: pip install -e ."
    )


def _is_wanted(record: logging.LogRecord) -> bool:
    """Filter the warning that Beam's first import makes without its extra for Google Cloud."""
    if not str(record.msg).startswith("apitools not found"):
        return True
    logging.getLogger().removeFilter(_is_wanted)
    return False


logging.getLogger().addFilter(_is_wanted)


# Where each public name is defined; type checkers read the same file.
with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as _stub:
    _MODULE_OF = {
        alias.name: str(node.module)
        for node in ast.parse(_stub.read()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

__all__ = sorted(_MODULE_OF)
# The rooms of what writes; reading needs few packages.
_WITH_BEAM = ("cards", "jobs", "preprocess", "runners", "transforms")


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULE_OF[name]
    if module.split(".")[1] in _WITH_BEAM and importlib.util.find_spec("apache_beam") is None:
        raise ImportError(
            f"beam_tfrecord.{name} needs apache-beam, which is not installed: install "
            "beam-tfrecord without --no-deps"
        )
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
