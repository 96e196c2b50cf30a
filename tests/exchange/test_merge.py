import struct
from pathlib import Path

import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_tfrecord.errors import DataError
from beam_tfrecord.exchange import merge
from beam_tfrecord.exchange import merge_plan as plan
from beam_tfrecord.exchange.merge import Merger, Slice, merged_entries
from beam_tfrecord.exchange.merge_plan import plan_merges
from beam_tfrecord.format.layout import Layout, ShardSpec, Splits
from beam_tfrecord.job_state.run_files import merge_counts
from tests.exchange.making import payloads, write_entries
from tests.helpers.effort import examples

NAMES = ["a", "b"]
SPLITS = Splits((("a", 0.5), ("b", 0.5)))


def merged(directory, runs, layout, **at_once):
    merger = Merger(layout, str(directory))
    counts = merge_counts(*(run.counts for run in runs))
    return [
        piece
        for sections in plan_merges(counts, layout)
        for piece in merger.merge(sections, [run.path for run in runs], **at_once)
    ]


def spread(entries, section):
    """Return the payloads of a section in their order, which docs/splits-and-order.md promises."""
    entries = sorted(entry[1:] for entry in entries if in_section(entry, section))
    numbers = [
        sum(other[0] == entry[0] for other in entries[:at]) for at, entry in enumerate(entries)
    ]
    first, size = section.first_key, section.last_key - section.first_key

    def position(sort_key, number):
        hashed = xxhash.xxh64_intdigest(struct.pack("<QQQ", 0, sort_key, number))
        return first + hashed % size if number else sort_key

    order = [position(sort_key, n) for (sort_key, _), n in zip(entries, numbers, strict=True)]
    ordered = sorted(zip(order, range(len(entries)), entries, strict=True))
    return [payload for _, _, (_, payload) in ordered]


def in_section(entry, section):
    split, sort_key, _ = entry
    return split == section.split and section.first_key <= sort_key <= section.last_key


# Few sort keys and short payloads, so that equal ones are common.
sort_keys = st.sampled_from([0, 1, 2, 7, 2**48, 2**49, 2**63, 2**64 - 1])
entry = st.tuples(st.sampled_from(NAMES), sort_keys, st.binary(max_size=3))
many_runs = st.lists(st.lists(entry, min_size=1, max_size=12), min_size=1, max_size=5)


@pytest.mark.parametrize("held", [1, 2])
# With the last, all sections are too large to sort.
@pytest.mark.parametrize("section_bytes", [2**20, 60, 1])
@pytest.mark.parametrize("key", [(), ("id",)], ids=["spread", "key"])
@settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(runs=many_runs, shards=st.integers(2, 6), times=st.sampled_from([1, 3, 100]))
def test_merged_runs_are_all_records_sorted_with_copies_spread(
    section_bytes, held, key, tmp_path_factory, runs, shards, times
):
    directory = tmp_path_factory.mktemp("runs")
    per_split = ShardSpec(per_split=(("a", shards), ("b", shards)))
    layout = Layout(splits=SPLITS, shards=per_split, key=key)
    written = [
        write_entries(directory, entries, NAMES, shift=48, name=f"run-{i}")
        for i, entries in enumerate(runs)
    ]
    with pytest.MonkeyPatch.context() as patch:
        for module in (merge, plan):
            patch.setattr(module, "SECTION_BYTES", section_bytes)
        patch.setattr(merge, "sections_held", lambda _: held)
        patch.setattr(merge, "STEP_BYTES", 40)
        pieces = merged(directory, written, layout, section_bytes=times * section_bytes)
        counts = merge_counts(*(run.counts for run in written))
        sections = [section for task in plan_merges(counts, layout) for section in task]
    together = [one for entries in runs for one in entries]
    expected = {name: [] for name in NAMES}
    for section in sections:
        if key or 3 * section.bytes > 4 * section_bytes:
            inside = sorted(entry for entry in together if in_section(entry, section))
            expected[section.split] += [payload for _, _, payload in inside]
        else:
            expected[section.split] += spread(together, section)
    for name in NAMES:
        of_split = sorted((p for p in pieces if p.split == name), key=lambda piece: piece.order)
        assert [r for piece in of_split for r in payloads(piece.path)] == expected[name]
        assert all(piece.examples == len(payloads(piece.path)) > 0 for piece in of_split)
        assert all(piece.bytes == Path(piece.path).stat().st_size for piece in of_split)


@pytest.mark.parametrize("section_bytes", [2**20, 1], ids=["sorted", "streamed"])
def test_in_source_order_equal_places_keep_the_order_of_runs(tmp_path, monkeypatch, section_bytes):
    monkeypatch.setattr(merge, "SECTION_BYTES", section_bytes)
    layout = Layout(shuffle=False, shards=ShardSpec(total=1))
    runs = [
        write_entries(
            tmp_path, [("a", number, text) for number in (1, 2)], ["a"], shift=0, name=name
        )
        for name, text in (("run-1", b"z"), ("run-2", b"a"), ("run-3", b"m"))
    ]
    [piece] = merged(tmp_path, runs, layout)
    assert payloads(piece.path) == [b"z", b"a", b"m", b"z", b"a", b"m"]


@pytest.mark.parametrize("section_bytes", [2**20, 1], ids=["sorted", "streamed"])
@pytest.mark.parametrize("change", [b"\x00", b"\x03", b"\xff"])
def test_a_damaged_length_is_noticed_and_leaves_no_shard(
    tmp_path, monkeypatch, section_bytes, change
):
    monkeypatch.setattr(merge, "SECTION_BYTES", section_bytes)
    entries = [("a", sort_key, b"payload") for sort_key in range(4)]
    run = write_entries(tmp_path, entries, ["a"], shift=48, name="run")
    with open(run.path, "r+b") as file:
        file.seek(31 + 8)
        file.write(change)
    with pytest.raises(DataError, match=r"damaged|runs of split 'a' hold"):
        merged(tmp_path, [run], Layout(shards=ShardSpec(total=1)))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_missing_run_is_noticed(tmp_path):
    runs = [
        write_entries(tmp_path, [("a", 1, b"x")], ["a"], shift=48, name=name)
        for name in ("run-1", "run-2")
    ]
    sections = plan_merges(merge_counts(*(run.counts for run in runs)), Layout())[0]
    with pytest.raises(DataError, match="runs of split 'a' hold 1 records, but 2 were written"):
        list(Merger(Layout(), str(tmp_path)).merge(sections, [runs[0].path]))


def test_what_is_held_does_not_grow_with_the_slices(tmp_path):
    entries = [("a", sort_key << 40, b"x" * 100) for sort_key in range(40_000)]
    runs = [
        write_entries(tmp_path, entries[number::2], ["a"], shift=48, name=f"run-{number}")
        for number in range(2)
    ]
    slices = [Slice(run.path, 0, 20_000 * 124) for run in runs]
    sizes = [len(lot) for lot in merged_entries(slices, by_bytes=True)]
    assert sum(sizes) == 40_000 * 124
    assert max(sizes) <= 2 * 2 * 2**20
