"""``job.json``: what varies from run to run, sealed with the hash of its own text.

It also holds the hashes of the files whose bytes may differ between versions of a codec though
they say the same: compressed shards, and the rejects. So every byte of a dataset is under a hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from beam_tfrecord.errors import DataError
from beam_tfrecord.hashes import data_hash
from beam_tfrecord.storage import is_plain_name, put, read_small
from beam_tfrecord.type_checks import has_type

JOB_NAME = "job.json"
STORED_HASHES = "stored_xxh64"
STORED_BYTES = "stored_bytes"
PUBLICATION = "publication"
# Hashes of what the files of the input were: names, sizes and times; change times and inodes; and
# the bytes that were read of them.
INPUT, INPUT_STATE, INPUT_XXH64 = "input", "input_state", "input_xxh64"
_SEAL = "xxh64"


def dump_job(job: Mapping[str, Any]) -> str:
    """Return the text of ``job.json``."""
    unsealed = {key: value for key, value in job.items() if key != _SEAL}
    blank = json.dumps({**unsealed, _SEAL: ""}, indent=1)
    return json.dumps({**unsealed, _SEAL: data_hash(blank.encode())}, indent=1)


def add_to_job(path: str, more: Mapping[str, Any]) -> None:
    """Add to a ``job.json`` what only whoever waited for the job knows."""
    put(path, dump_job({**load_job(read_small(path).decode()), **more}).encode())


def load_job(text: str) -> dict[str, Any]:
    """Parse the text of ``job.json``.

    Raises:
        DataError: It is no such text, or was changed after it was written.
    """
    try:
        job = dict(json.loads(text))
        del job[_SEAL]
        # The files that these name are opened: no name may lead elsewhere.
        hashes = job.get(STORED_HASHES, {})
        is_sound = has_type(hashes, dict[str, str]) and all(map(is_plain_name, hashes))
        if is_sound and dump_job(job) == text:
            return job
    except (KeyError, TypeError, ValueError, RecursionError):
        pass
    raise DataError("was changed after it was written")
