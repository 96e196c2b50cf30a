"""Computes the plan of a job before it runs: estimates of the reads, temporary files and writes.

Records travel to their shards through an exchange: workers write *runs* (sorted files of records),
and merge tasks join them. The numbers of runs, merge tasks and requests come from the functions
that the exchange itself uses. There is an estimate of cost only if the user passes prices.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.exchange.plan import (
    LAST_TASK_BYTES,
    MOST_WINDOW_BYTES,
    PART_BYTES,
    TASK_BYTES,
    max_fan_in,
    request_bytes,
    run_bytes_for,
    window_bytes_for,
)
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import schema_tf_columns
from beam_tfrecord.progress import format_seconds
from beam_tfrecord.records.infer_row_types import returned_schema
from beam_tfrecord.rejects import parse_budget
from beam_tfrecord.runner_traits import traits_of
from beam_tfrecord.sizes import counted, format_size
from beam_tfrecord.sources.base import Scan, Source, Unit
from beam_tfrecord.sources.groups import GROUP_BYTES, group_units, grown_bytes, one_group
from beam_tfrecord.sources.tfrecord.source import copies_records
from beam_tfrecord.storage import is_remote
from beam_tfrecord.tables import html_table, listed, printable

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import Settings

# The amount that a price is for: a million requests, or a gigabyte through the shuffle.
PRICED: Mapping[str, int] = {
    "read_requests": 10**6,
    "write_requests": 10**6,
    "shuffle_bytes": 10**9,
}

# As in `docs/performance.md`: the start, and for each core bytes of records and calls of a map.
_START_S, _CORE_BYTES_PER_S, _CORE_CALLS_PER_S = 1.5, 50e6, 45_000
# Size of one upload request, and the assumed size of one request that reads input.
TRANSFER_BYTES = 16 * 2**20
# Reading the footer of a run takes two requests, a short one first, if the run covers all places
# (positions of records in the dataset).
_LARGE_INDEX = 2

_FIRST_PASSES = {
    "csv": "scan for row ends",
    "json": "scan for newlines",
    "parquet": "read footers",
    "arrow": "read footers",
    "orc": "read footers",
    "avro": "find blocks",
    "sql": "ask the catalog and count",
}


@dataclasses.dataclass(frozen=True)
class MergeRound:
    """One round of merging sorted runs into larger runs or into shards."""

    tasks: int
    window_bytes: int
    reads: int
    index_reads: int


class Plan(dict[str, Any]):
    """The plan of a job: a dict of JSON values, which a notebook shows as a table."""

    def lines(self) -> list[tuple[str, str]]:
        """Return what users want to know of the job, as labels and texts."""
        of, splits, seconds = self["input"], self["splits"], self["estimated_seconds"]
        rows = "an unknown number of rows" if of["rows"] is None else counted(of["rows"], "row")
        shards = [
            f"{counted(one['shards'], 'shard')} of about {format_size(one['shard_bytes'])}"
            + (f" in {name} ({one['share']:.3g})" if len(splits) > 1 else "")
            for name, one in splits.items()
            if isinstance(one, Mapping)
        ]
        if not shards:
            shards = [f"splits {listed([f'{a} {b}' for a, b in splits.items()])}"]
        time = "unknown" if seconds is None else f"about {format_seconds(seconds)} on this machine"
        files, size = counted(of["files"], "file"), format_size(self["estimated_record_bytes"])
        moved = "through the shuffle" if self["exchange"] == "runner" else "temporary files"
        skipped = counted(of.get("rows_not_read", 0), "row")
        out = [
            ("input", f"{of['kind']}, {files}, {format_size(of['bytes'])}, {rows}"),
            *(
                [("not read", f"{skipped}, {format_size(of['bytes_not_read'])}")]
                if of.get("rows_not_read")
                else []
            ),
            ("passes over the input", f"{len(self['passes'])}: {', '.join(self['passes'])}"),
            ("output", f"{self['output']}, about {size}"),
            ("shards", ", ".join(shards)),
            (moved, f"about {format_size(self['estimated_temporary_bytes'])}"),
            ("time", time),
            ("order", "shuffled" if self["order"] == "shuffled" else "as in the input"),
            ("runner", self["runner"]),
            *(("setting", f"{flag} {text}") for flag, text in self["settings"].items()),
            *(
                ("cost", f"{name.replace('_', ' ')} {'unknown' if cost is None else cost}")
                for name, cost in self.get("cost", {}).items()
            ),
            *(("may go wrong", risk) for risk in self["risks"]),
        ]
        return [(label, printable(text)) for label, text in out]

    def _repr_html_(self) -> str:
        return html_table(("plan", ""), self.lines())


def plan_of(settings: Settings, prices: Mapping[str, float] | None = None) -> Plan:
    """Return the plan of a job as JSON values; sizes and requests are estimates."""
    source = settings.source.sized(sum(file.bytes for file in settings.source.files()))
    scans = source.all_scans()
    units = source.all_units(scans)
    if source.infers_from_scans:
        _check_columns(settings, source, scans)
    settings.source.release()
    group_bytes = GROUP_BYTES if settings.is_one_pass else source.group_bytes
    groups = one_group(units) if settings.limit else group_units(units, group_bytes)
    input_bytes = sum(unit.input_bytes for unit in units)
    splits = _splits(settings, sum(unit.encoded_bytes for unit in units))
    planned = Plan(
        {
            "input": {
                "kind": settings.source.kind,
                "files": sum({unit.file.name: unit.file.inside for unit in units}.values()),
                "bytes": input_bytes,
                "rows": _rows(units, settings.limit),
                **_selected(source, units),
            },
            "units": len(units),
            "groups": len(groups),
            "passes": _passes(settings),
            "order": "shuffled" if settings.layout.shuffle else "source",
            "place": _place(settings, units),
            **_movement(settings, units),
            "splits": splits,
            "output": settings.target.directory,
            "runner": settings.runner,
            "settings": dict(settings.asked),
        }
    )
    planned["estimated_seconds"] = _seconds(settings, planned)
    planned["risks"] = _risks(settings, planned)
    return planned if prices is None else Plan(planned, cost=_cost(planned, prices))


def _seconds(settings: Settings, planned: Mapping[str, Any]) -> float | None:
    """Return about how long the job takes on this machine; None if nothing tells."""
    rows: int | None = planned["input"]["rows"]
    size: int = planned["estimated_record_bytes"]
    is_unknown = (settings.map and rows is None) or not size
    if not traits_of(settings.runner).runs_here or settings.transform or is_unknown:
        return None
    cores = os.cpu_count() or 1
    calls = sum("map" in one for one in planned["passes"]) + 1 if settings.map else 0
    return _START_S + (size / _CORE_BYTES_PER_S + (rows or 0) * calls / _CORE_CALLS_PER_S) / cores


def _risks(settings: Settings, planned: Mapping[str, Any]) -> list[str]:
    """Return what may end the job, and the options that prevent it."""
    risks = []
    if settings.budget == parse_budget(0):
        risks.append(
            "the first row that cannot be written ends the job: --max-rejects 1% allows some"
        )
    directory = settings.target.directory
    while not is_remote(directory) and not os.path.exists(directory):
        directory = os.path.dirname(directory)
    needed = planned["estimated_record_bytes"] + planned["estimated_temporary_bytes"]
    if not is_remote(directory) and (free := shutil.disk_usage(directory).free) < needed:
        risks.append(
            f"the disk has {format_size(free)}, the job needs {format_size(needed)}: free some"
        )
    if not traits_of(settings.runner).runs_here:
        risks.append("all workers must reach the input and the output by the same paths")
    return risks


def _check_columns(settings: Settings, source: Source, scans: Sequence[Scan]) -> None:
    """Check that a filter fits the columns, and that a dataset can hold those that it will have."""
    if source.selection is not None:
        source.selection.check(source.schema(scans))
    if not settings.has_schema and settings.transform is None:
        schema_tf_columns(Schema.from_arrow(source.schema(scans)))


def _movement(settings: Settings, units: list[Unit]) -> dict[str, Any]:
    """Return the part of the plan about the exchange: its kind, runs, rounds, bytes, requests."""
    encoded = sum(unit.encoded_bytes for unit in units)
    input_bytes = sum(unit.input_bytes for unit in units)
    rounds: list[MergeRound] = []
    runs, temporary, shuffled = 0, encoded, 0
    exchange = "none: one pass" if settings.is_one_pass else "files"
    if not settings.is_one_pass and settings.layout.shuffle:
        exchange = traits_of(settings.runner).exchange
    if exchange == "files":
        runs, rounds = merge_rounds(encoded, request_bytes(settings.target.directory))
        temporary = encoded * (len(rounds) + 1)
        shuffled = encoded * len(rounds)
    elif exchange == "runner":
        # Runs are written once, after the shuffle.
        shuffled = encoded
    passes = (
        len(_passes(settings)) if settings.source.kind in ("csv", "json") or settings.map else 1
    )
    is_counted = exchange != "runner"
    reads = passes * math.ceil(input_bytes / TRANSFER_BYTES)
    reads += sum(one.reads + one.index_reads for one in rounds)
    writes = runs + sum(one.tasks for one in rounds)
    writes += math.ceil(encoded * (len(rounds) + 1) / TRANSFER_BYTES)
    return {
        "exchange": exchange,
        "runs": runs if is_counted else None,
        "rounds": len(rounds) if is_counted else None,
        "estimated_record_bytes": encoded,
        "estimated_temporary_bytes": temporary,
        "estimated_shuffle_bytes": shuffled,
        "estimated_read_requests": reads if is_counted else None,
        "estimated_write_requests": writes if is_counted else None,
    }


def merge_rounds(record_bytes: int, request: int) -> tuple[int, list[MergeRound]]:
    """Return the number of runs, and the rounds of merging that turn them into shards."""
    run_bytes = grown_bytes(record_bytes, run_bytes_for(record_bytes, request))
    runs = max(1, math.ceil(record_bytes / run_bytes))
    most = max_fan_in(request)
    if runs <= most:
        window = window_bytes_for(runs, request)
        tasks = math.ceil(record_bytes / max(TASK_BYTES, window))
        return runs, [_round(record_bytes, tasks, window, runs, _LARGE_INDEX)]
    batches = math.ceil(runs / most)
    parts = batches * math.ceil(record_bytes / (batches * PART_BYTES))
    tasks = math.ceil(record_bytes / LAST_TASK_BYTES)
    return runs, [
        _round(record_bytes, parts, MOST_WINDOW_BYTES, math.ceil(runs / batches), _LARGE_INDEX),
        _round(record_bytes, tasks, MOST_WINDOW_BYTES, batches, 1),
    ]


def _round(record_bytes: int, tasks: int, window: int, fan_in: int, indexes: int) -> MergeRound:
    reads = max(1, math.ceil(record_bytes / window)) * fan_in
    return MergeRound(tasks, window, reads, tasks * fan_in * indexes)


def _cost(planned: Mapping[str, Any], prices: Mapping[str, float]) -> dict[str, float | None]:
    cost: dict[str, float | None] = {}
    for name, price in prices.items():
        if name not in PRICED:
            raise UsageError(f"there is no price of {name!r}: give one of {', '.join(PRICED)}")
        amount = planned[f"estimated_{name}"]
        cost[name] = None if amount is None else round(amount / PRICED[name] * price, 4)
    known = [amount for amount in cost.values() if amount is not None]
    return {**cost, "total": round(sum(known), 4) if len(known) == len(cost) else None}


def _place(settings: Settings, units: list[Unit]) -> str:
    if settings.layout.key:
        return "key"
    return "origin" if settings.source.numbers_rows(units) else "bytes"


def _rows(units: list[Unit], limit: int | None) -> int | None:
    counts = [unit.rows for unit in units]
    if None in counts:
        return None
    total = sum(count for count in counts if count is not None)
    return total if limit is None else min(total, limit)


def _selected(source: Source, units: list[Unit]) -> dict[str, Any]:
    """Return the filter and the sample, and how much of the input is not read because of them."""
    if source.selection is None:
        return {}
    pruned = {
        "rows_not_read": sum(unit.pruned_rows for unit in units),
        "bytes_not_read": sum(unit.pruned_bytes for unit in units),
    }
    return source.selection.identity() | pruned


def _passes(settings: Settings) -> list[str]:
    """Return a description of each pass over the input, in order."""
    source = settings.source
    infers = not source.infers_from_scans and not copies_records(source)
    passes = [_FIRST_PASSES[source.kind]] if source.kind in _FIRST_PASSES else []
    if infers and (settings.schema is None or settings.map is not None):
        passes.append("infer types")
    if (
        settings.map is not None
        and not settings.map.takes_batches
        and settings.schema is None
        and returned_schema(settings.map.function) is None
    ):
        passes.append("run the map once to infer its types")
    if settings.transform is not None and settings.transform.fitted is None:
        passes.append("make statistics of the rows to fit on")
    return [*passes, "read and encode"]


def _splits(settings: Settings, encoded: int) -> dict[str, Any]:
    splits, shards = settings.layout.splits, settings.layout.shards
    if splits.column is not None:
        return {"by column": splits.column}
    if settings.kept_splits:
        return {"as in the input": list(settings.kept_splits)}
    if encoded == 0:
        return {}
    sizes = {name: max(1, math.floor(encoded * share)) for name, share in splits.fractions}
    counts = shards.counts(sizes)
    return {
        name: {
            "share": share,
            "estimated_bytes": sizes[name],
            "shards": counts[name],
            "shard_bytes": sizes[name] // counts[name],
        }
        for name, share in splits.fractions
    }
