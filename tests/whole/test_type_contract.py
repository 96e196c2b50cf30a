"""Every type of the contract, before three readers.

Values and types are random; what is expected comes from `type_oracle`, which reads the contract
value by value. `scripts/prove/run types` does the same for thousands of examples a family.
"""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from beam_tfrecord.features.schema import Schema
from beam_tfrecord.records.encoding import Arena, Encoder
from beam_tfrecord.sources.tfrecord import Tfrecord
from tests.helpers.records import framed, write_shard
from tests.whole.type_families import FAMILIES
from tests.whole.type_readers import CHECKS, NAME, check_ours, check_wire, write

QUICK = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


READERS = ["wire", pytest.param("tensorflow", marks=pytest.mark.xdist_group("tensorflow"))]


@pytest.mark.parametrize("family", FAMILIES)
def test_protobuf_and_we_see_every_value_as_the_contract_says(family):
    @QUICK
    @given(FAMILIES[family])
    def check(column):
        written = write(column)
        check_wire(written)
        check_ours(written)

    check()


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("reader", READERS[1:])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_reader_sees_every_value_as_the_contract_says(family, reader):
    @QUICK
    @given(FAMILIES[family])
    def check(column):
        CHECKS[reader](write(column))

    check()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_dataset_that_is_read_and_written_again_has_the_same_bytes(family, tmp_path):
    @QUICK
    @given(FAMILIES[family])
    def check(column):
        written = write(column)
        path = tmp_path / "x.tfrecord"
        write_shard(path, pa.table([column.array], names=[NAME]), schema=written.schema)
        (batch,) = Tfrecord(path).batches()
        arena = Arena()
        assert Encoder(Schema.from_arrow(batch.data.schema)).encode(batch, arena).rejects == []
        frames = arena.used_data().tobytes()
        assert frames == path.read_bytes() == b"".join(map(framed, written.payloads))

    check()
