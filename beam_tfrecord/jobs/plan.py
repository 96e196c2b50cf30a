"""`plan`: what a job would do, told before it does it."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from beam_tfrecord.jobs.planning_cluster import Work, on_cluster
from beam_tfrecord.jobs.planning_rates import Rates, machine_of
from beam_tfrecord.layout import DEFAULT_SHARD_BYTES
from beam_tfrecord.records.infer_row_types import returned_schema
from beam_tfrecord.sources.base import Unit
from beam_tfrecord.storage import is_remote

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import Settings

_FIRST_PASSES = {
    "csv": "scan for row ends",
    "parquet": "read footers",
    "sql": "ask the catalogue and count",
}

# An exchange writes every record twice and reads it once more.
_EXCHANGE_WRITES = 2


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Machines that a job is to be reckoned for.

    Attributes:
        workers: How many.
        machine: What each is called.
        usd_hour: Price of one, instead of the one in the table.
        rates: Speeds and other prices.
    """

    workers: int
    machine: str = "n2-standard-4"
    usd_hour: float | None = None
    rates: Rates = Rates()


def plan_of(settings: Settings, cluster: Cluster | None = None) -> dict[str, Any]:
    """Return what a job would do, as JSON values; sizes of records are estimates.

    Args:
        settings: The job.
        cluster: Where to; None: only what is the same anywhere.

    Raises:
        UsageError: Nothing is known of such machines.
    """
    from beam_tfrecord.sources.groups import GROUP_BYTES, group_units, one_group

    source = settings.source.sized(sum(file.bytes for file in settings.source.files()))
    scans = source.all_scans()
    units = source.all_units(scans)
    settings.source.release()
    group_bytes = GROUP_BYTES if settings.is_one_pass else source.group_bytes
    groups = one_group(units) if settings.limit else group_units(units, group_bytes)
    encoded = sum(unit.encoded_bytes for unit in units)
    input_bytes = sum(unit.input_bytes for unit in units)
    passes = _passes(settings)
    planned: dict[str, Any] = {
        "input": {
            "kind": settings.source.kind,
            "files": sum({unit.file.name: unit.file.inside for unit in units}.values()),
            "bytes": input_bytes,
            "rows": _rows(units, settings.limit),
        },
        "units": len(units),
        "groups": len(groups),
        "passes": passes,
        "order": "shuffled" if settings.layout.shuffle else "source",
        "place": _place(settings, units),
        "exchange": "none: one pass" if settings.is_one_pass else "files",
        "estimated_record_bytes": encoded,
        "estimated_temporary_bytes": encoded * (1 if settings.is_one_pass else _EXCHANGE_WRITES),
        "splits": _splits(settings, encoded),
        "output": settings.target.directory,
    }
    if cluster is None:
        return planned
    is_read_often = settings.source.kind == "csv" or settings.map is not None
    work = Work(
        input_bytes=input_bytes,
        record_bytes=encoded,
        units=len(units),
        is_shuffled=not settings.is_one_pass,
        scans=len(passes) - 1 if is_read_often else 0,
        is_remote=is_remote(settings.target.directory),
    )
    machine = machine_of(cluster.machine, usd_hour=cluster.usd_hour)
    shards = sum(of.get("shards", 0) for of in planned["splits"].values() if isinstance(of, dict))
    told = on_cluster(work, machine, cluster.workers, cluster.rates, shards=shards)
    return {**planned, "cluster": told}


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


def _passes(settings: Settings) -> list[str]:
    """Name the passes over the input."""
    source = settings.source
    infers = not source.infers_from_scans
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
    if encoded == 0:
        return {}
    sizes = {name: max(1, math.floor(encoded * share)) for name, share in splits.fractions}
    counts = shards.counts(sizes)
    size = shards.shard_bytes or DEFAULT_SHARD_BYTES
    return {
        name: {
            "share": share,
            "estimated_bytes": sizes[name],
            "shards": counts[name],
            "shard_bytes": sizes[name] // counts[name] if shards.shard_bytes is None else size,
        }
        for name, share in splits.fractions
    }
