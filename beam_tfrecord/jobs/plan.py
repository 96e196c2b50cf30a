"""Plans a job before it runs: what it would read, and which splits and shards it would write."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfrecord.base.text import counted, format_size, html_table, listed, printable
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tf_columns import schema_tf_columns
from beam_tfrecord.records.row_types import returned_schema
from beam_tfrecord.runners import asked_workers, choose_workers, traits_of
from beam_tfrecord.sources.base import Scan, Source, Unit
from beam_tfrecord.sources.read_tasks import READ_TASK_BYTES, one_task, pack_units
from beam_tfrecord.sources.tfrecord import copies_records

if TYPE_CHECKING:
    from beam_tfrecord.jobs.settings import Settings

_FIRST_PASSES = {
    "csv": "scan for row ends",
    "json": "scan for newlines",
    "parquet": "read footers",
    "arrow": "read footers",
    "orc": "read footers",
    "avro": "find blocks",
    "sql": "ask the catalog and count",
}


class Plan(dict[str, Any]):
    """The plan of a job: a dict of JSON values, which a notebook shows as a table."""

    def lines(self) -> list[tuple[str, str]]:
        """Return what users want to know of the job, as labels and texts."""
        of, splits = self["input"], self["splits"]
        rows = "an unknown number of rows" if of["rows"] is None else counted(of["rows"], "row")
        shards = [
            f"{counted(one['shards'], 'shard')} of about {format_size(one['shard_bytes'])}"
            + (f" in {name} ({one['share']:.3g})" if len(splits) > 1 else "")
            for name, one in splits.items()
            if isinstance(one, Mapping)
        ]
        if not shards:
            shards = [f"splits {listed([f'{a} {b}' for a, b in splits.items()])}"]
        files, size = counted(of["files"], "file"), format_size(self["estimated_record_bytes"])
        skipped = []
        if of.get("rows_not_read"):
            text = f"{counted(of['rows_not_read'], 'row')}, {format_size(of['bytes_not_read'])}"
            skipped.append(("not read", text))
        out = [
            ("input", f"{of['kind']}, {files}, {format_size(of['bytes'])}, {rows}"),
            *skipped,
            ("passes over the input", f"{len(self['passes'])}: {', '.join(self['passes'])}"),
            ("output", f"{self['output']}, about {size}"),
            ("shards", ", ".join(shards)),
            ("order", "shuffled" if self["order"] == "shuffled" else "as in the input"),
            ("runner", self["runner"]),
            *(("worker processes", _workers_text(**of)) for of in [self["workers"]] if of),
            *(("setting", f"{flag} {text}") for flag, text in self["settings"].items()),
            ("in short", self["summary"]),
        ]
        return [(label, printable(text)) for label, text in out]

    def _repr_html_(self) -> str:
        return html_table(("plan", ""), self.lines())


def plan_of(settings: Settings) -> Plan:
    """Return the plan of a job as JSON values; sizes are estimates."""
    source = settings.source.sized(sum(file.bytes for file in settings.source.files()))
    scans = source.all_scans()
    units = source.all_units(scans)
    if source.infers_from_scans:
        _check_columns(settings, source, scans)
    settings.source.release()
    task_bytes = READ_TASK_BYTES if settings.is_one_pass else source.task_bytes
    tasks = one_task(units) if settings.limit else pack_units(units, task_bytes)
    encoded = sum(unit.encoded_bytes for unit in units)
    passes = _passes(settings)
    planned = {
        "input": {
            "kind": settings.source.kind,
            "files": sum({unit.file.name: unit.file.inside for unit in units}.values()),
            "bytes": sum(unit.input_bytes for unit in units),
            "rows": _rows(units, settings.limit),
            **_selected(source, units),
        },
        "units": len(units),
        "tasks": len(tasks),
        "passes": passes,
        "order": "shuffled" if settings.layout.shuffle else "source",
        "place": _order_by(settings, units),
        "estimated_record_bytes": encoded,
        "splits": _splits(settings, encoded),
        "output": settings.target.directory,
        "runner": settings.runner,
        "workers": _workers(settings),
        "settings": dict(settings.asked),
        "summary": _summary(settings, encoded, len(passes)),
    }
    return Plan(planned)


def _workers(settings: Settings) -> dict[str, Any]:
    """Return how many worker processes a job on this machine would have, and why."""
    if not traits_of(settings.runner).runs_here:
        return {}
    source = settings.source
    has_python = settings.map is not None or source.runs_python
    asked = asked_workers(settings.pipeline_options)
    number, why = choose_workers(asked, has_python, lambda: source.is_large(source.files()))
    return {"number": number, "why": why}


def _workers_text(number: int, why: str) -> str:
    return f"{number if number > 1 else 'none'}: {why}"


def _summary(settings: Settings, encoded: int, passes: int) -> str:
    """Return in one line what the plan means for the user's disks."""
    # Sorted files of records, from which the shards are merged.
    has_runs = settings.layout.shuffle and traits_of(settings.runner).exchange == "files"
    space = format_size(encoded * 2 if has_runs else encoded)
    times = "once" if passes == 1 else f"{passes} times"
    return f"the input is read {times}, and writing needs about {space} of space at the output"


def _check_columns(settings: Settings, source: Source, scans: Sequence[Scan]) -> None:
    """Check that a filter fits the columns, and that a dataset can hold those that it will have."""
    if source.selection is not None:
        source.selection.check(source.schema(scans))
    if not settings.has_schema and settings.transform is None:
        schema_tf_columns(Schema.from_arrow(source.schema(scans)))


def _order_by(settings: Settings, units: list[Unit]) -> str:
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
        and settings.transform is not None
        and not settings.map.takes_batches
        and settings.schema is None
        and returned_schema(settings.map.function) is None
    ):
        passes.append("run the map once to infer its types")
    if settings.transform is not None and settings.transform.fitted is None:
        passes.append("make statistics of the rows to fit on")
    if settings.layout.splits.needs_counts:
        passes.append("count rows for the splits")
    return [*passes, "read and encode"]


def _splits(settings: Settings, encoded: int) -> dict[str, Any]:
    splits, shards = settings.layout.splits, settings.layout.shards
    if splits.column is not None:
        return {"by column": splits.column}
    if not splits.fractions:
        return {"by the rules of": list(splits.names)}
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
