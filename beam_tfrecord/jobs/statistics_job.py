"""Computes statistics by a Beam job, for datasets that are too large for one process."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Sequence

import apache_beam as beam

from beam_tfrecord.dataset.load import load
from beam_tfrecord.errors import UsageError
from beam_tfrecord.runners.start import pipeline
from beam_tfrecord.stats.statistics import Statistics, summarize
from beam_tfrecord.stats.summary import Summary
from beam_tfrecord.storage import absolute_path, put

# Of many small shards one step reads several.
_MOST_PARTS = 10_000

_BySplit = dict[str, Summary]


def write_statistics(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    split: str | None = None,
    runner: str = "direct",
    pipeline_options: Sequence[str] = (),
) -> None:
    """Write the JSON of `Dataset.stats` to a file, by a job on a Beam runner.

    Args:
        path: Path of the dataset, which all workers can read.
        output: Path of the file, which all workers can write.
        split: Name of a split; None means each split.
        runner: Name of the runner, as in `write`.
        pipeline_options: Options of Beam, as in `write`.

    Raises:
        UsageError: There is no dataset or split, or no example.
        DataError: A shard is damaged.
    """
    location = absolute_path(path)
    splits = load(location, split=split).split_names
    parts = [
        (name, index, count)
        for name in splits
        for count in [min(len(load(location, split=name).shards), _MOST_PARTS)]
        for index in range(count)
    ]
    if not parts:
        raise UsageError(f"{os.fspath(path)!r} has no examples")
    with pipeline(runner, options=pipeline_options) as root:
        _ = (
            root
            | beam.Create(parts)
            | beam.Reshuffle()
            | "Summarize" >> beam.Map(_summarize, location)
            | "Merge" >> beam.CombineGlobally(_merge).without_defaults()
            | "Write" >> beam.Map(_write, absolute_path(output), splits)
        )


def _summarize(part: tuple[str, int, int], path: str) -> _BySplit:
    split, index, count = part
    return {split: summarize(load(path, split=split).of_shards(index, count))}


def _merge(parts: Iterable[_BySplit]) -> _BySplit:
    return functools.reduce(_merged, parts, {})


def _merged(one: _BySplit, other: _BySplit) -> _BySplit:
    joined = {name: one[name].merge(other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **joined}


def _write(found: _BySplit, output: str, splits: Sequence[str]) -> None:
    statistics = Statistics({name: found[name] for name in splits})
    text = json.dumps(statistics.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
    put(output, f"{text}\n".encode())
