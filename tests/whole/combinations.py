"""Every option with every kind of element and source: cases, and what each must give.

A case is a choice of one level for each factor. `covering` chooses few cases in which every pair
of levels occurs. What a dataset must hold follows from the rows alone; nothing of the package is
asked for it. A case that cannot be written must be refused in one line.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from fractions import Fraction
from typing import Any, NamedTuple, Optional

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms import window

import beam_tfrecord as bt
from beam_tfrecord.errors import RejectedRows
from tests.helpers.formats import write_file
from tests.helpers.lazy import Lazy
from tests.helpers.records import example, read_records
from tests.helpers.tf_example import Example
from tests.sources.made_sql import make_database

tf = Lazy("tensorflow")

Case = dict[str, Any]
Row = dict[str, Any]

SIZES = (0, 1, 4, 1000)
MOVED = 10**6
SCHEMA = pa.schema(
    [("id", pa.int64()), ("x", pa.float32()), ("name", pa.string()), ("part", pa.string())]
)
HALVES = {"train": 0.5, "test": 0.5}
IMPUTE = [{"op": "impute", "columns": ["x"], "how": "mean"}]


def covering(factors, is_sound, *, strength=2, seed=0, tries=30, most=None):
    """Return cases in which every sound choice of levels of `strength` factors occurs.

    Greedy: each case is the best of some that begin with a choice that is still missing. The
    first ones hold the most of what is new.

    Args:
        factors: The levels of each factor.
        is_sound: Whether a case, which may lack factors, makes sense.
        strength: Factors that are combined.
        seed: Of the choice among equals.
        tries: Candidates for each case.
        most: How many of the first cases to return; None: all.
    """
    draw = random.Random(seed)
    missing = {
        tuple(zip(names, levels, strict=True))
        for names in itertools.combinations(sorted(factors), strength)
        for levels in itertools.product(*(range(len(factors[name])) for name in names))
        if is_sound({n: factors[n][level] for n, level in zip(names, levels, strict=True)})
    }
    found = []
    while missing and len(found) != most:
        best = (-1, {})
        ordered = sorted(missing)
        for _ in range(tries):
            levels = dict(draw.choice(ordered))
            names = [name for name in factors if name not in levels]
            draw.shuffle(names)
            for name in names:
                choices = list(range(len(factors[name])))
                draw.shuffle(choices)
                for choice in choices:
                    case = {n: factors[n][level] for n, level in levels.items()}
                    if is_sound({**case, name: factors[name][choice]}):
                        levels[name] = choice
                        break
            if len(levels) == len(factors):
                new = sum(_holds(levels, choice) for choice in missing)
                best = max(best, (new, levels), key=lambda pair: pair[0])
        if best[0] <= 0:
            # What is left never occurs in a whole case that makes sense.
            break
        missing = {choice for choice in missing if not _holds(best[1], choice)}
        found.append({name: factors[name][best[1][name]] for name in factors})
    return found


def _holds(levels, choice):
    return all(levels[name] == level for name, level in choice)


# Rows.


class Item(NamedTuple):
    """A row with types that Beam knows."""

    id: int
    x: Optional[float]  # noqa: UP045
    name: Optional[str]  # noqa: UP045
    part: str


def input_rows(size):
    """Return so many rows, or those that a function gives."""
    if callable(size):
        return size()
    return [
        {
            "id": number,
            "x": None if number % 5 == 3 else number / 4,
            "name": None if number % 7 == 6 else f"name {number % 11}",
            "part": "abc"[number * number % 3],
        }
        for number in range(size)
    ]


def doubled(row: Row) -> Row:
    """Add a column."""
    return {**row, "y": row["id"] * 2}


def two_of(row: Row) -> list[Row]:
    """Make two rows of one."""
    return [row, {**row, "id": row["id"] + MOVED}]


def only_even(row: Row) -> Row | None:
    """Leave out every other row."""
    return row if row["id"] % 2 == 0 else None


def even_batch(data: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out every other row of a batch."""
    return data.filter(pa.array(data["id"].to_numpy() % 2 == 0))


def same_batch(data: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch as it is."""
    return data


def bytes_of(row: Row) -> bytes:
    """Return a row as a serialized example."""
    return example(**{name: value for name, value in row.items() if value is not None})


def example_of(row: Row) -> Any:
    """Return a row as a `tf.train.Example`."""
    return tf.train.Example.FromString(bytes_of(row))


class RowCoder(beam.coders.Coder):
    """A coder as a user of Beam's own sink has one."""

    def encode(self, value: Row) -> bytes:
        """Return a row as a serialized example."""
        return bytes_of(value)

    def is_deterministic(self) -> bool:
        """It is no matter."""
        return True


def seen(row: Row) -> tuple[Any, ...]:
    """Return a row as an example shows it: absent values left out, numbers as they are stored."""
    return tuple(
        (name, float(np.float32(value)) if isinstance(value, float) else value)
        for name, value in sorted(row.items())
        if value is not None
    )


def read_rows(directory, prefix):
    """Return the rows of every shard of every split, read by protobuf alone."""
    name = "manifest.json" if prefix is None else f"{prefix}-manifest.json"
    manifest = json.loads((directory / name).read_text())
    found = {}
    for split, content in manifest["splits"].items():
        found[split] = []
        for shard in content["shards"]:
            records = list(map(Example.FromString, read_records(directory / shard["path"])))
            assert len(records) == shard["examples"]
            found[split].append([_values(record) for record in records])
    return found


def _values(example):
    row = {}
    for name, feature in example.features.feature.items():
        (value,) = getattr(feature, feature.WhichOneof("kind")).value
        row[name] = value.decode() if isinstance(value, bytes) else value
    return row


# Input.


def make_input(kind, rows, directory):
    """Write rows as input of some kind; return what reads it."""
    table = pa.Table.from_pylist(list(rows), SCHEMA)
    if kind == "csv":
        return str(write_file(directory / "in.csv", table))
    if kind == "parquet":
        return str(write_file(directory / "in.parquet", table, group_rows=300))
    if kind == "numpy":
        return str(write_file(directory / "in.npz", table.select(["id", "x"])))
    directory.mkdir(parents=True, exist_ok=True)
    key = "PRIMARY KEY" if kind == "sql" else ""
    columns = f"id INTEGER {key} NOT NULL, x REAL, name TEXT, part TEXT NOT NULL"
    values = [tuple(row[name] for name in SCHEMA.names) for row in rows]
    return str(make_database(directory / "in.db", f"CREATE TABLE t ({columns})", rows=values))


READERS = {
    "csv": lambda path: bt.ReadFromCsv(path, types={"x": "float32"}),
    "parquet": bt.ReadFromParquet,
    "numpy": bt.ReadFromNumpy,
    "sql": lambda path: bt.ReadFromSql(path, table="t"),
    "view": lambda path: bt.ReadFromSql(path, table="t"),
}
ELEMENTS = {
    "dict": dict,
    "NamedTuple": lambda row: Item(**row),
    "Row": lambda row: beam.Row(**row),
    "any": dict,
    "coder": dict,
    "Example": example_of,
    "bytes": bytes_of,
    "BatchRows": dict,
}
STEPS = {
    "map": lambda: bt.MapRows(doubled),
    "explode": lambda: bt.MapRows(two_of, schema=SCHEMA),
    "drop": lambda: bt.MapRows(only_even),
    "to bytes": lambda: bt.MapRows(bytes_of),
    "batches": lambda: bt.MapBatches(same_batch),
    "fewer": lambda: bt.MapBatches(even_batch, keeps_rows=False),
    "splits": lambda: bt.AssignSplits(HALVES),
    "impute": lambda: bt.Preprocess(IMPUTE),
    "ToRows": bt.ToRows,
    "EncodeExamples": bt.EncodeExamples,
    "Reshuffle": beam.Reshuffle,
}
WINDOWS = {
    "fixed": window.FixedWindows(10),
    "sliding": window.SlidingWindows(10, 5),
    "sessions": window.Sessions(3),
}


def at(time):
    """Return a function that gives an element a time."""
    return lambda element: window.TimestampedValue(element, time)


# Pipelines of one's own.

PIPELINES = {
    "kind": (*READERS, *ELEMENTS),
    "size": SIZES,
    "step": ("none", *STEPS),
    "last": ("none", "ToRows", "EncodeExamples", "map"),
    "window": ("global", *WINDOWS),
    "inputs": (1, 2),
    "shuffle": (True, False),
    "splits": (None, "hash", "column"),
    "key": ((), "id"),
    "group": ((), "part"),
    "shards": (None, 1, 3, "by split"),
    "shard_size": (None, "2KB"),
    "compression": ("none", "gzip"),
    "target": ("directory", "prefix"),
    "exchange": (None, "files", "runner"),
    "schema": (False, True),
    "seed": (0, 7),
    "mode": ("FnApiRunner", "direct"),
}


def is_sound_pipeline(case):
    """Tell whether a case makes sense: only batches go through the transforms of batches."""
    kind, step, last = case.get("kind"), case.get("step", "none"), case.get("last", "none")
    are_plain = step in ("ToRows", "EncodeExamples")
    if are_plain and last != "none":
        return False
    takes_batches = kind in READERS or kind == "BatchRows" or kind is None
    if not takes_batches and ((step not in ("none", "Reshuffle")) or last != "none"):
        return False
    if step == "to bytes" and last in ("ToRows", "map"):
        return False
    # A given schema is that of the rows as they were read.
    if case.get("schema") and (step == "map" or last == "map" or kind == "numpy"):
        return False
    return refusal_of_pipeline(case) != "must"


def refusal_of_pipeline(case):
    """Return ``must``, ``may`` or ``no``: whether a case, which may lack factors, is refused."""
    kind, step, last = case.get("kind"), case.get("step"), case.get("last")
    splits = case.get("splits")
    if _is_contradiction(case) or (splits and case.get("target") == "prefix"):
        return "must"
    if step == "splits" and last in ("ToRows", "EncodeExamples"):
        return "must"
    if step == "splits" and (splits or case.get("group")):
        return "must"
    are_examples = kind in ("Example", "bytes", "coder") or step in ("to bytes", "EncodeExamples")
    are_examples = are_examples or last == "EncodeExamples"
    if (are_examples or kind == "numpy") and (case.get("group") or splits == "column"):
        return "must"
    if are_examples and case.get("key"):
        return "must"
    if step == "splits" and case.get("target") == "prefix":
        return "must"
    if step == "splits":
        return _few_shards({**case, "splits": "hash"})
    # Where no step assigns splits is known of a whole case alone.
    return _few_shards(case) if step is not None else "no"


def _is_contradiction(case):
    """Tell whether options exclude each other, whatever the input is."""
    return bool(
        (case.get("shards") and case.get("shard_size"))
        or (case.get("key") and not case.get("shuffle", True))
        or (case.get("splits") == "column" and case.get("group"))
    )


def _few_shards(case):
    """Return whether a case is refused since it has fewer shards than splits."""
    shards, splits = case.get("shards"), case.get("splits")
    if shards == 1 and splits == "hash":
        return "must"
    if shards == "by split" and "splits" in case and splits != "hash":
        return "must"
    # It follows from the rows how many splits a column names: up to four.
    return "may" if shards in (1, 3) and splits == "column" else "no"


def expected_rows(case):
    """Return the rows that a dataset must hold, in source order of one input."""
    rows = input_rows(case["size"])
    if case["kind"] == "numpy":
        rows = [{"id": row["id"], "x": 0.0 if row["x"] is None else row["x"]} for row in rows]
    for step in (case["step"], case.get("last", "none")):
        if step == "map":
            rows = [doubled(row) for row in rows]
        elif step == "explode":
            rows = [one for row in rows for one in two_of(row)]
        elif step in ("drop", "fewer"):
            rows = [row for row in rows if row["id"] % 2 == 0]
        elif step == "impute":
            values = [Fraction(row["x"]) for row in rows if row["x"] is not None]
            mean = float(sum(values) / len(values)) if values else 0.0
            rows = [{**row, "x": mean if row["x"] is None else row["x"]} for row in rows]
    return rows


def run_pipeline(case, directory):
    """Run a case."""
    rows = input_rows(case["size"])
    if case["kind"] == "numpy":
        rows = [{**row, "x": 0.0 if row["x"] is None else row["x"]} for row in rows]
    path = make_input(case["kind"], rows, directory / "in") if case["kind"] in READERS else ""
    sink = bt.WriteToTFRecord(
        f"{directory / 'out'}/" if case["target"] == "directory" else str(directory / "out/part"),
        RowCoder() if case["kind"] == "coder" else None,
        schema=bt.Schema.from_arrow(SCHEMA) if case["schema"] else None,
        splits=HALVES if case["splits"] == "hash" else None,
        split_column="part" if case["splits"] == "column" else None,
        key=case["key"],
        group=case["group"],
        shards={"train": 2, "test": 1} if case["shards"] == "by split" else case["shards"],
        shard_size=case["shard_size"],
        shuffle=case["shuffle"],
        seed=case["seed"],
        compression_type=case["compression"],
        exchange=case["exchange"],
    )
    with bt.pipeline(case["mode"]) as p:
        inputs = [_input(p, case, rows, path, str(number)) for number in range(case["inputs"])]
        found = inputs[0] if len(inputs) == 1 else inputs | "Both" >> beam.Flatten()
        for label in ("step", "last"):
            if case[label] != "none":
                found = found | label >> _step(case, label)
        found | sink


def _step(case, label):
    is_read = case["kind"] in READERS and case["window"] == "global" and case["inputs"] == 1
    if case[label] == "impute" and not is_read:
        # Only a reader says which columns there are.
        names = ("id", "x") if case["kind"] == "numpy" else SCHEMA.names
        return bt.Preprocess(IMPUTE, schema=pa.schema([SCHEMA.field(name) for name in names]))
    return STEPS[case[label]]()


def _input(p, case, rows, path, label):
    kind = case["kind"]
    if kind in READERS:
        found = p | f"Read{label}" >> READERS[kind](path)
        hint = bt.Batch
    else:
        elements = [ELEMENTS[kind](row) for row in rows]
        found = p | f"Create{label}" >> beam.Create(elements, reshuffle=False)
        hint = {"any": Any, "coder": Any, "bytes": bytes, "NamedTuple": Item}.get(kind)
        if kind in ("dict", "BatchRows"):
            hint = dict
        if kind == "Example":
            hint = type(example_of({}))
        if kind == "Row":
            hint = beam.Row
        found = found | f"Typed{label}" >> beam.Map(_same).with_output_types(hint)
    if case["window"] != "global":
        timed = f"Time{label}" >> beam.Map(at(7)).with_output_types(hint)
        found = found | timed | f"Window{label}" >> beam.WindowInto(WINDOWS[case["window"]])
    return found | f"Batch{label}" >> bt.BatchRows(SCHEMA) if kind == "BatchRows" else found


def _same(element: Any) -> Any:
    return element


def check_pipeline(case, directory):
    """Run a case and check what it gives; return ``written`` or ``refused``.

    Raises:
        AssertionError: It is wrong.
    """
    refusal = refusal_of_pipeline(case)
    try:
        run_pipeline(case, directory)
    except Exception as error:
        line = refusal_line(error)
        assert refusal != "no", f"refused: {line}"
        assert not list(directory.glob("out/*manifest.json")), "published, and refused"
        return "refused"
    assert refusal != "must", "not refused"
    copies = case["inputs"] * (2 if case["window"] == "sliding" else 1)
    prefix = None if case["target"] == "directory" else "part"
    steps = {case["step"], case["last"]}
    has_order = case["kind"] in ("csv", "parquet", "numpy") and case["window"] != "sliding"
    has_order &= not steps & {"ToRows", "EncodeExamples"}
    check_dataset(
        case,
        directory / "out",
        expected_rows(case),
        copies=copies,
        prefix=prefix,
        is_assigned=case["step"] == "splits",
        in_order=has_order,
        are_numbered=has_order and not case["key"] and "fewer" not in steps,
    )
    return "written"


def refusal_line(error):
    """Return the first line of the error that refuses a case.

    Raises:
        Exception: It is none of this package, or is no good line.
    """
    if isinstance(error, bt.BeamTFRecordError):
        line, *details = str(error).split("\n")
        # Only rejects have causes, a line each.
        assert not details or isinstance(error, RejectedRows)
        assert all(detail.startswith("  ") for detail in details)
    else:
        # A runner raises what a worker raised in its own way.
        found = re.findall(r"beam_tfrecord\.errors\.\w+: (.*)", str(error))
        if not found:
            raise error
        line = found[-1]
    assert "\n" not in line
    assert not line[0].isupper() or line.split()[0] in bt.__all__
    assert "run the job again" not in line
    return line


def check_dataset(
    case, out, rows, *, copies=1, prefix=None, is_assigned=False, in_order=False, are_numbered=False
):
    """Check a dataset against the rows that it must hold.

    Args:
        case: The case.
        out: Where the dataset is.
        rows: Of one input.
        copies: How often each row must be there.
        prefix: File prefix of the dataset, if it has one.
        is_assigned: An earlier step has assigned the splits.
        in_order: In source order, inputs follow each other and have their rows in order.
        are_numbered: Places follow from the origins of rows, so copies lie anywhere.
    """
    found = read_rows(out, prefix)
    assert Counter(seen(row) for row in _all(found)) == Counter(
        {row: count * copies for row, count in Counter(map(seen, rows)).items()}
    )
    assert bt.verify(out if prefix is None else out / prefix).ok
    names = set(found)
    if is_assigned or case["splits"] == "hash":
        assert names <= set(HALVES)
    elif case["splits"] == "column":
        for split, shards in found.items():
            assert {row["part"] for shard in shards for row in shard} == {split}
    else:
        assert names <= {"data"}
    if case["splits"] == "hash" and not is_assigned:
        by = "part" if case["group"] else "id" if case["key"] else None
        of_value = {}
        for split, shards in found.items():
            for shard in shards:
                for row in shard:
                    of_value.setdefault(row[by] if by else seen(row), set()).add(split)
        assert all(len(splits) == 1 for splits in of_value.values())
        if len(rows) >= 1000 and by != "part":
            assert names == set(HALVES)
    shards = sum(len(of_split) for of_split in found.values())
    assert all(shard for of_split in found.values() for shard in of_split)
    if isinstance(case["shards"], int):
        assert shards <= max(case["shards"], len(names))
        if len(rows) >= 1000 and not case["group"] and len(names) == 1:
            assert shards == case["shards"]
    elif case["shards"] == "by split" and len(rows) >= 1000 and not case["group"]:
        assert {name: len(of_split) for name, of_split in found.items()} == {"train": 2, "test": 1}
    elif case["shard_size"] and len(rows) >= 1000:
        assert shards > 3
    for split_rows in ([row for shard in of_split for row in shard] for of_split in found.values()):
        ids = [row["id"] % MOVED for row in split_rows]
        if case["shuffle"]:
            assert len(ids) < 200 or ids != sorted(ids)
            if are_numbered and len(ids) >= 200:
                side_by_side = sum(one == other for one, other in itertools.pairwise(ids))
                assert side_by_side < len(ids) / 10, "copies lie side by side"
        elif in_order:
            assert sum(one > other for one, other in itertools.pairwise(ids)) < copies


def _all(found):
    for shards in found.values():
        yield from itertools.chain.from_iterable(shards)
