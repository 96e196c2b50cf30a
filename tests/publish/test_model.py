"""The protocol of publishing keeps its promises in every state, and each part of it is needed."""

import pytest

from tests.publish.model import COMPACT, Model, Violation

TWICE, TWO, COMPACTED, OVER = [
    (("A", "A"), ("AB",)),
    (("A",), ("B",)),
    (("A", COMPACT), ("B",)),
    (("A",), ("O!",)),
]
DIRECTORY = [(("A", "O!"), ("B", COMPACT)), ((COMPACT, "A"), ("O!", "B")), (("O!",), ("P!",))]
# Whether it is one of a store, and where it shows.
FAULTS = {
    "names of a number": (True, TWO),
    "files are removed before the commit": (True, TWO),
    "no If-Match": (True, TWO),
    "no look for its own id": (True, TWO),
    "no look at inputs": (True, TWICE),
    "inputs are forgotten": (True, COMPACTED),
    "an overwrite without its assumption": (True, OVER),
    "compaction as an overwrite": (False, COMPACTED),
    "no note": (False, TWO),
    "no lock": (False, TWO),
}


@pytest.mark.parametrize("operations", [TWICE, TWO, COMPACTED, OVER, *DIRECTORY])
def test_writers_keep_all_promises_in_any_order(operations):
    assert Model(is_store=False).search(*operations) > 400
    if operations not in DIRECTORY:
        assert Model(is_store=True).search(*operations) > 3000


@pytest.mark.parametrize("fault", FAULTS)
def test_without_any_one_part_a_promise_is_broken(fault):
    is_store, operations = FAULTS[fault]
    with pytest.raises(Violation):
        Model(is_store=is_store, fault=fault).search(*operations)
