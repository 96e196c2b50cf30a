"""The errors a user can meet.

    BeamTFRecordError          anything this package refuses, in one line
    ├── DataError              the data is at fault (exit code 1)
    │   ├── SchemaConflict     two places of the input disagree about a type
    │   ├── RejectedRows       more rows were rejected than the budget allows
    │   └── InputChanged       a file of the input was changed while it was read
    ├── UsageError             the call or the command is at fault (exit code 2)
    │   └── TargetExists       a dataset, or something else, is in the way
    ├── StorageError           a remote filesystem failed for good (exit code 1)
    │   └── LeaseLost          another job has taken the output over
    └── JobFailed              the runner ended the job (exit code 1)

Messages are lower case and say what, where, and what to do about it.
"""

from __future__ import annotations


class BeamTFRecordError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 2


class DataError(BeamTFRecordError):
    """The input data cannot become the dataset that was asked for."""

    exit_code = 1


class SchemaConflict(DataError):
    """Two places of the input, or the input and a given schema, disagree about a column."""


class RejectedRows(DataError):
    """More rows were rejected than ``max_rejects`` allows; nothing was published."""


class InputChanged(DataError):
    """A file of the input is no longer the one that was listed; nothing was published."""


class UsageError(BeamTFRecordError):
    """The call cannot be carried out as it was written."""


class TargetExists(UsageError):
    """Something is in the way at the output, or another job is at work there."""


class StorageError(BeamTFRecordError):
    """A remote filesystem failed, and trying again did not help."""

    exit_code = 1


class LeaseLost(StorageError):
    """The output directory is another job's by now."""


class JobFailed(BeamTFRecordError):
    """A runner elsewhere ended the job, for a reason that is not of the data."""

    exit_code = 1
