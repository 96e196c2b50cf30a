"""``job.json`` is sealed: a change of any byte of it is seen."""

import json

import xxhash

from beam_tfrecord.errors import DataError
from beam_tfrecord.format.job_file import dump_job, load_job

JOB = {"runner": "direct", "stored_bytes": {"größe": 7}}
TEXT = (
    '{\n "runner": "direct",\n "stored_bytes": {\n  "gr\\u00f6\\u00dfe": 7\n },\n "xxh64": "%s"\n}'
)


def test_the_text_ends_with_the_hash_of_itself():
    seal = xxhash.xxh64_hexdigest((TEXT % "").encode())
    assert dump_job(JOB) == TEXT % seal
    assert load_job(dump_job(JOB)) == JOB
    assert dump_job({**JOB, "xxh64": "old"}) == TEXT % seal


def is_refused(text):
    try:
        load_job(text)
    except DataError as error:
        return "changed" in str(error)
    return False


def test_every_byte_is_under_the_hash():
    data = dump_job(JOB).encode()
    missed = []
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        if not is_refused(changed.decode("latin-1")):
            missed.append(position)
    assert missed == []


def test_what_is_no_job_file():
    texts = ["", "[]", "{}", "1", "null", json.dumps(JOB)]
    assert [text for text in texts if not is_refused(text)] == []
