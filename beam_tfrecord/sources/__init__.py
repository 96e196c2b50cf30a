"""Sources: what can be read, one file each.

`base` states the contract; `SOURCES` names every kind.
"""

from __future__ import annotations

from beam_tfrecord.sources.base import Source as Source
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.numpy.source import Numpy
from beam_tfrecord.sources.parquet.source import Parquet
from beam_tfrecord.sources.sql.source import Sql

SOURCES: dict[str, type[Source]] = {
    Csv.kind: Csv,
    Parquet.kind: Parquet,
    Sql.kind: Sql,
    Numpy.kind: Numpy,
    Images.kind: Images,
}
