"""``job.json`` is sealed: a change of any byte of it is seen."""

import json

import pytest
import xxhash

from beam_tfrecord.errors import DataError
from beam_tfrecord.workdir.job_file import dump_job, load_job

JOB = {"runner": "direct", "stored_bytes": {"größe": 7}}
TEXT = (
    '{\n "runner": "direct",\n "stored_bytes": {\n  "gr\\u00f6\\u00dfe": 7\n },\n "xxh64": "%s"\n}'
)


def test_the_text_ends_with_the_hash_of_itself():
    seal = xxhash.xxh64_hexdigest((TEXT % "").encode())
    assert dump_job(JOB) == TEXT % seal
    assert load_job(dump_job(JOB)) == JOB
    assert dump_job({**JOB, "xxh64": "old"}) == TEXT % seal


@pytest.mark.parametrize("position", range(len(dump_job(JOB))))
def test_every_byte_is_under_the_hash(position):
    data = bytearray(dump_job(JOB).encode())
    data[position] ^= 1
    with pytest.raises(DataError, match="changed"):
        load_job(data.decode("latin-1"))


@pytest.mark.parametrize("text", ["", "[]", "{}", "1", "null", json.dumps(JOB)])
def test_what_is_no_job_file(text):
    with pytest.raises(DataError, match="changed"):
        load_job(text)
