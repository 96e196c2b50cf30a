import pytest

from beam_tfrecord.exchange import output_writers
from beam_tfrecord.exchange.output_writers import DirectWriter
from beam_tfrecord.format.layout import Layout, ShardSpec
from beam_tfrecord.job_state.job import Job, Target
from tests.exchange.making import batch_of, payloads

# A framed example of one int64 up to 127.
RECORD_BYTES = 30


def job_in(directory, shard_bytes):
    layout = Layout(shuffle=False, shards=ShardSpec(shard_bytes=shard_bytes))
    return Job(Target(str(directory)), str(directory), layout=layout)


def write(directory, batches, shard_bytes):
    writer = DirectWriter(job_in(directory, shard_bytes))
    pieces = [piece for batch in batches for piece in writer.add(batch)]
    pieces += writer.end_task()
    assert writer.take_tally().records == sum(piece.examples for piece in pieces)
    return pieces


def contents(pieces):
    return [(piece.order, [p[-1] for p in payloads(piece.path)]) for piece in pieces]


def test_a_shard_ends_before_it_is_a_quarter_too_large(tmp_path):
    pieces = write(tmp_path, [batch_of([*range(12)])], shard_bytes=4 * RECORD_BYTES)
    assert [piece.bytes for piece in pieces] == [150, 150, 60]
    assert contents(pieces) == [
        ((0, 0), [0, 1, 2, 3, 4]),
        ((0, 1), [5, 6, 7, 8, 9]),
        ((0, 2), [10, 11]),
    ]


@pytest.mark.parametrize("write_bytes", [1, 100, 2**20])
@pytest.mark.parametrize("step", [1, 3, 5, 100])
def test_cuts_do_not_depend_on_batches_or_buffers(tmp_path, monkeypatch, step, write_bytes):
    values = [*range(100)]
    expected = contents(write(tmp_path, [batch_of(values)], shard_bytes=500))
    monkeypatch.setattr(output_writers, "WRITE_BYTES", write_bytes)
    parts = [batch_of(values[i : i + step], first=i) for i in range(0, 100, step)]
    assert contents(write(tmp_path, parts, shard_bytes=500)) == expected
    assert len(expected) == 5


def test_a_record_larger_than_a_shard_has_one_of_its_own(tmp_path):
    pieces = write(tmp_path, [batch_of([1, 2, 3])], shard_bytes=1)
    assert contents(pieces) == [((0, 0), [1]), ((0, 1), [2]), ((0, 2), [3])]
