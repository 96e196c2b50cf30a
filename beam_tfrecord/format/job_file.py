"""Reads and writes ``job.json``, which holds facts about a job that vary from run to run.

The file ends with the hash of its own text. It also holds the hashes of compressed shards and of
the rejects, whose bytes may differ between versions of a codec although the content is the same. So
a hash covers every byte of a dataset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from beam_tfrecord.base.arguments import has_type
from beam_tfrecord.errors import DataError
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.storage import is_plain_name, put, read_small

JOB_NAME = "job.json"
STORED_HASHES = "stored_xxh64"
STORED_BYTES = "stored_bytes"
PUBLICATION = "publication"
# Names of hashes of the input files: of their names, sizes and times; and of their change times and
# inodes.
INPUT, INPUT_STATE = "input", "input_state"
# The input files, as `[path, bytes, version, digest]`, and the arguments that decide the dataset:
# what a job needs that appends rows.
INPUTS, ARGUMENTS = "inputs", "arguments"
# Name of the fingerprint without the user's functions, of a job that a notebook started.
WITHOUT_FUNCTIONS = "fingerprint_without_functions"
# Name of the settings that decided the dataset, as texts by flag, for messages.
SETTINGS = "settings"
_SEAL = "xxh64"


def dump_job(job: Mapping[str, Any]) -> str:
    """Return the text of ``job.json``, with its hash."""
    unsealed = {key: value for key, value in job.items() if key != _SEAL}
    blank = json.dumps({**unsealed, _SEAL: ""}, indent=1)
    return json.dumps({**unsealed, _SEAL: data_hash(blank.encode())}, indent=1)


def add_to_job(path: str, more: Mapping[str, Any]) -> None:
    """Add entries to a ``job.json``, which only the launcher knows after it waited for the job."""
    put(path, dump_job({**load_job(read_small(path).decode()), **more}).encode())


def read_job(path: str) -> dict[str, Any]:
    """Return the content of a ``job.json``; empty if it is missing or damaged."""
    try:
        return load_job(read_small(path).decode())
    except (FileNotFoundError, DataError, UnicodeDecodeError):
        return {}


def load_job(text: str) -> dict[str, Any]:
    """Parse the text of ``job.json``."""
    try:
        job = dict(json.loads(text))
        del job[_SEAL]
        # Files of these names are opened: no name may lead out of the directory.
        hashes = job.get(STORED_HASHES, {})
        is_sound = has_type(hashes, dict[str, str]) and all(map(is_plain_name, hashes))
        if is_sound and dump_job(job) == text:
            return job
    except (KeyError, TypeError, ValueError, RecursionError):
        pass
    raise DataError("was changed after it was written")
