"""Code of a user that a worker cannot load: told to the launcher, who would wait for minutes.

The runner hears of it too, but tries again as after any fault; and where it was about to send data
to that worker, it first waits some minutes for it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

# In the directory of a job, beside the fault itself: there is something to look for.
UNLOADABLE = "unloadable"

# These are a machine's, and may not come again.
_PASSING = (OSError, MemoryError, EOFError)


def tell_of_unloadable(directory: str) -> None:
    """From now on, write down in `directory` what Beam cannot load in this process."""
    from apache_beam.internal import pickler

    load = pickler.loads

    def loads(*args: Any, **options: Any) -> Any:
        try:
            return load(*args, **options)
        except Exception as error:
            # The runner is told of it in any case.
            with contextlib.suppress(Exception):
                _tell(directory, error)
            raise

    pickler.loads = loads


def _tell(directory: str, error: Exception) -> None:
    from beam_tfrecord.errors import BeamTFRecordError, UsageError
    from beam_tfrecord.storage import is_remote, put
    from beam_tfrecord.workdir.faults import record_fault

    # Where the directory is gone, the job is over.
    if isinstance(error, _PASSING) or not (is_remote(directory) or os.path.isdir(directory)):
        return
    said = " ".join(str(error).split())
    if not isinstance(error, BeamTFRecordError):
        said = f"{type(error).__name__}: {said}"
    record_fault(directory, UsageError(unloadable_line(said)))
    put(os.path.join(directory, UNLOADABLE), b"")


def unloadable_line(said: str) -> str:
    """Return what a user is told of their code, given the error that a worker has met."""
    return (
        f"a worker cannot load your code ({said}): install what is missing where workers run, or "
        "keep it beside the file of your function"
    )
