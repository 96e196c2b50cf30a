"""Sources: what can be read, one file each.

`base` states the contract; `SOURCES` names every kind.
"""

from __future__ import annotations

from beam_tfrecord.sources.base import Source as Source
from beam_tfrecord.sources.csv import Csv
from beam_tfrecord.sources.parquet import Parquet

SOURCES: dict[str, type[Source]] = {Csv.kind: Csv, Parquet.kind: Parquet}
