"""Sources: what can be read, one file each.

`base` states the contract; `SOURCES` names every kind.
"""

from __future__ import annotations

from beam_tfrecord.sources.base import Source as Source
from beam_tfrecord.sources.csv import Csv
from beam_tfrecord.sources.images import Images
from beam_tfrecord.sources.numpy_arrays import Numpy
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.sources.sql import Sql

SOURCES: dict[str, type[Source]] = {
    Csv.kind: Csv,
    Parquet.kind: Parquet,
    Sql.kind: Sql,
    Numpy.kind: Numpy,
    Images.kind: Images,
}
