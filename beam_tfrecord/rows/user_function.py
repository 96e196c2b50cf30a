"""Loads the user's function for rows from ``module:function`` or ``file.py:function``.

The fingerprint of a dataset contains the hash of the source code of this function. A lambda,
closure, notebook cell or callable object may depend on more than its source code, so it has no
hash, and its dataset has no fingerprint.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import os
import re
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable
from typing import Any

from beam_tfrecord.errors import UsageError, did_you_mean

# Code of Python, of installed packages and of this package. Compiled modules have relative paths.
_LIBRARIES = (sysconfig.get_path("stdlib"), os.path.dirname(__file__))
_NOT_USERS = re.compile(
    rf"(?:{'|'.join(map(re.escape, _LIBRARIES))})/|.*/(?:site|dist)-packages/|<frozen |[^/<]"
)


@dataclasses.dataclass(frozen=True)
class MapFunction:
    """A callable that wraps the user's function, with the hash of its source code.

    A function from a file is pickled as the text of the file, so that workers do not need the file.
    """

    function: Callable[..., Any]
    name: str
    sha256: str | None
    file: tuple[str, str] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def identity(self) -> list[str | None]:
        """Return the name of the function and the hash of its source code, for fingerprints."""
        return [getattr(self.function, "__qualname__", ""), self.sha256]

    @property
    def takes_batches(self) -> bool:
        """Whether the annotation of the function's first parameter is `pyarrow.RecordBatch`."""
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):
            return False
        annotation = parameters[0].annotation if parameters else None
        name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        return name.split(".")[-1] == "RecordBatch"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a function of a file as the file's text."""
        if self.file is None:
            return MapFunction, (self.function, self.name, self.sha256)
        return _from_text, (self.name, *self.file)


def load_map(function: str | Callable[..., Any] | MapFunction) -> MapFunction:
    """Return the user's function, with the hash of its source code.

    Modules are found as by ``python -m``, in the current directory first. A file may import other
    modules of its directory.
    """
    if isinstance(function, MapFunction):
        return function
    if not isinstance(function, str):
        if not callable(function):
            raise UsageError(f"map {function!r} is not a function: give one, or 'module:function'")
        return MapFunction(function, _name_of(function), source_sha256(function))
    module_name, _, attribute = function.rpartition(":")
    if not module_name or not attribute:
        raise UsageError(f"cannot read map {function!r}: write module:function or file.py:function")
    if module_name.endswith(".py") or os.sep in module_name:
        return _from_text(function, os.path.abspath(module_name), _read_source(module_name))
    _look_in(os.getcwd())
    module = _run(function, lambda: importlib.import_module(module_name))
    return MapFunction(_find(module, function), function, _module_sha256(module))


def is_users_file(path: str) -> bool:
    """Return whether a file in a traceback is the user's own, not of Python or of a package."""
    return not _NOT_USERS.match(path)


def is_interactive() -> bool:
    """Return whether people type code into this process: a notebook, IPython or a prompt."""
    # Python defines its prompt only while it is interactive, and IPython (the kernel of Jupyter,
    # VS Code and Colab) defines one for code that asks this question.
    return hasattr(sys, "ps1")


def source_sha256(function: Callable[..., Any]) -> str | None:
    """Return the SHA-256 of the source code of a function's module."""
    if not isinstance(function, types.FunctionType) or "<" in function.__qualname__:
        return None
    return _module_sha256(sys.modules.get(function.__module__))


def _module_sha256(module: types.ModuleType | None) -> str | None:
    path = getattr(module, "__file__", None) or ""
    if not path.endswith(".py"):
        return None
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _read_source(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"cannot read map file {path!r}: {str(reason).lower()}") from error


def _from_text(name: str, path: str, text: str) -> MapFunction:
    """Return the function in the text of a file; workers unpickle functions through this."""
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    stem = re.sub(r"\W", "_", os.path.splitext(os.path.basename(path))[0])
    # The hash distinguishes files of the same name, and versions of the same file.
    module_name = f"_beam_tfrecord_map_{stem}_{sha256[:16]}"
    module = sys.modules.get(module_name)
    if module is None:
        module = types.ModuleType(module_name)
        module.__file__ = path
        _look_in(os.path.dirname(path))
        # While the file runs, dataclasses and type hints look up their module by name.
        sys.modules[module_name] = module
        try:
            # The user's file must not inherit `from __future__ import annotations` from here.
            code = _run(name, lambda: compile(text, path, "exec", dont_inherit=True))
            _run(name, lambda: exec(code, module.__dict__))
        except BaseException:
            del sys.modules[module_name]
            raise
    return MapFunction(_find(module, name), name, sha256, (path, text))


def _look_in(directory: str) -> None:
    if directory not in sys.path:
        sys.path.insert(0, directory)


def _run(name: str, load: Callable[[], Any]) -> Any:
    """Import or run the user's module; its errors become a `UsageError` with file and line."""
    try:
        return load()
    except ModuleNotFoundError as error:
        module = name.rpartition(":")[0]
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(
                f"cannot find module {error.name!r} of map {name!r}: run from its directory, "
                "install it, or write file.py:function"
            ) from error
        raise UsageError(f"cannot import map {name!r}: {_line_of(error)}{error}") from error
    except Exception as error:
        raise UsageError(
            f"cannot import map {name!r}: {_line_of(error)}{type(error).__name__}: {error}"
        ) from error


def _line_of(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return ""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "" if last.filename.startswith("<") else f"{last.filename}:{last.lineno}: "


def _find(module: types.ModuleType, name: str) -> Callable[..., Any]:
    attribute = name.rpartition(":")[2]
    found = getattr(module, attribute, None)
    if found is None:
        hint = did_you_mean(attribute, vars(module))
        raise UsageError(f"map {name!r}: there is no function {attribute!r}{hint and f': {hint}'}")
    if not callable(found):
        raise UsageError(f"map {name!r}: {attribute!r} is not a function but {found!r:.60}")
    return found  # type: ignore[no-any-return]


def _name_of(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"
