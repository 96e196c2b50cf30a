"""The transforms `ReadFromCsv`, `ReadFromSql`, …: one for each kind of source.

All of them return a PCollection of `Batch`. Their arguments are the options of their sources, with
those of `ReadOptions`.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from beam_tfrecord.base.arguments import describe_arguments
from beam_tfrecord.errors import UsageError
from beam_tfrecord.options import Option, sources
from beam_tfrecord.options.jobs import SelectOptions
from beam_tfrecord.rows.batch import DEFAULT_BATCH_ROWS, Batch
from beam_tfrecord.selection.select import make_selection
from beam_tfrecord.sources.base import Source, with_selection
from beam_tfrecord.sources.choose import SOURCES
from beam_tfrecord.sources.memory import Memory, OnDisk, until_exit
from beam_tfrecord.transforms.read_batches import ReadBatches

# Tables of arguments read better than what the formatter makes of them.
# fmt: off

@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions(SelectOptions):
    """The options of all readers."""

    batch_rows: Annotated[int, Option(
        "Maximum number of rows per batch; does not affect the dataset.")] = DEFAULT_BATCH_ROWS

    def __post_init__(self) -> None:
        """Set up the transform that inherits the options."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TempDirOption:
    """Where data in memory goes."""

    temp_dir: Annotated[str | None, Option(
        "Directory for data in memory, which every worker must see; None means the temporary "
        "directory of this machine.")] = None


@dataclasses.dataclass(frozen=True)
class _Csv(ReadOptions, sources.CsvOptions, sources.FileOptions):
    """The arguments of `ReadFromCsv`."""


@dataclasses.dataclass(frozen=True)
class _Json(ReadOptions, sources.JsonOptions, sources.FileOptions):
    """The arguments of `ReadFromJson`."""


@dataclasses.dataclass(frozen=True)
class _Excel(ReadOptions, sources.ExcelOptions, sources.FileOptions):
    """The arguments of `ReadFromExcel`."""


@dataclasses.dataclass(frozen=True)
class _TFRecord(ReadOptions, sources.UnionOption, sources.FileOptions):
    """The arguments of `ReadFromTFRecord`."""


@dataclasses.dataclass(frozen=True)
class _Images(ReadOptions, sources.ImageOptions, sources.FileOptions):
    """The arguments of `ReadFromImages`."""


@dataclasses.dataclass(frozen=True)
class _Coco(ReadOptions, sources.CocoOptions, sources.FileOptions):
    """The arguments of `ReadFromCoco`."""


@dataclasses.dataclass(frozen=True)
class _Typed(ReadOptions, sources.TypedOptions, sources.FileOptions):
    """The arguments of the readers of files that state their types."""


@dataclasses.dataclass(frozen=True)
class _Lake(ReadOptions, sources.LakeOptions, sources.ColumnsOption):
    """The arguments of the readers of tables of a data lake."""

    paths: Annotated[str | os.PathLike[str], Option("Directory, URL or name of the table.")]


@dataclasses.dataclass(frozen=True)
class _Arrow(
    ReadOptions, sources.TypedOptions, sources.ColumnsOption, sources.MemoryOptions, TempDirOption
):
    """The arguments of `ReadFromArrow`."""

    paths: Annotated[Any, Option(
        "Files, directories and globs; or a table (pandas, polars, Arrow, Hugging Face datasets, "
        "and others that export Arrow), NumPy arrays by name, or an iterable of rows (dicts, "
        "NamedTuples, dataclasses).")]


@dataclasses.dataclass(frozen=True)
class _Numpy(ReadOptions, sources.NumpyOptions, sources.ColumnsOption, TempDirOption):
    """The arguments of `ReadFromNumpy`."""

    paths: Annotated[
        str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | npt.NDArray[Any]
        | Mapping[str, npt.NDArray[Any]], Option(
        'Files, directories and globs; or an array, or arrays by name: ``{"data": array, "label": '
        "labels}``, of equal length along their first axis.")]


@dataclasses.dataclass(frozen=True)
class _Sql(ReadOptions, sources.DatabaseOptions, sources.ColumnsOption):
    """The arguments of `ReadFromSql`."""

    paths: Annotated[str | os.PathLike[str], Option(
        "URL of the database, or the path of a SQLite or DuckDB file.")]
    _: dataclasses.KW_ONLY
    password: Annotated[str | None, Option("The password itself.")] = None

# fmt: on


class SourceTransform(ReadOptions, beam.PTransform):
    """A transform whose arguments are the options of a source.

    A subclass inherits them from a dataclass, with their `__init__`. Its name ends with the kind of
    the source.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if (kind := cls.__name__.rpartition("From")[2].lower()) in SOURCES:
            cls.kind = kind
        describe_arguments(cls)

    def __post_init__(self) -> None:
        beam.PTransform.__init__(self)
        selection = make_selection(
            filter=self.filter, sample=self.sample, sample_seed=self.sample_seed
        )
        general = {field.name for field in dataclasses.fields(ReadOptions)}
        names = [field.name for field in dataclasses.fields(self) if field.name not in general]
        options = {name: getattr(self, name) for name in names}
        self.source = with_selection(self._source(options), selection)
        # Neither data nor a password stay in the pipeline.
        for name in ("paths", "password"):
            self.__dict__.pop(name, None)

    def _source(self, options: dict[str, Any]) -> Source:
        """Return the source for options; subclasses whose arguments are others change them."""
        kind: Any = SOURCES[self.kind]
        made: Source = kind(**options)
        return made


class ReadFromSource(SourceTransform):
    """Base class of the readers: a transform that can also read its source without a pipeline."""

    @property
    def runs_python(self) -> bool:
        """Whether the source runs Python code for each row."""
        return bool(self.source.runs_python)

    def batches(self) -> Iterator[Batch]:
        """Iterate over the batches of the input in this process, without a pipeline."""
        return self.source.batches(batch_rows=self.batch_rows)

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection[Batch]:
        """Add the steps that plan and read to the pipeline."""
        return ReadBatches(self.source, batch_rows=self.batch_rows).expand(begin)


class ReadFromCsv(ReadFromSource, _Csv):
    """Read CSV files, plain or compressed (``.gz .bz2 .zst .lz4 .xz``), as `Batch`es.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromCsv("trips.csv", null_words=["NA"])
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadFromJson(ReadFromSource, _Json):
    """Read JSON Lines and JSON files, plain or compressed (``.gz .bz2 .zst .lz4 .xz``).

    A file is JSON Lines, an array of objects, or one or several objects over several lines.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromJson("trips.jsonl") | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadFromExcel(ReadFromSource, _Excel):
    """Read one sheet of each Excel workbook (``.xlsx``) as `Batch`es; row 1 names the columns.

    Text is the only type for a column with several kinds of values. Words for null may be errors
    such as ``#N/A``.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromExcel("trips.xlsx") | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadFromTFRecord(ReadFromSource, _TFRecord):
    """Read datasets, or TFRecord files of other programs, as `Batch`es.

    The columns of a dataset have the types of its manifest. Those of other files are found in all
    records: a feature with one value in each record is a scalar, one with the same number of values
    in each a list of fixed size, and others are lists. Bytes are text if all are valid UTF-8. A
    feature that a record lacks is null there. Rows of a dataset lose their splits.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromTFRecord("trips.tfrecord") | bt.ToRows() | beam.Map(print)
        {'fare': 2.5, 'id': 1}
    """


class ReadFromAvro(ReadFromSource, _Typed):
    """Read Avro object container files as `Batch`es.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromAvro("trips.avro") | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadFromOrc(ReadFromSource, _Typed):
    """Read ORC files as `Batch`es.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromOrc("trips.orc") | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadFromParquet(ReadFromSource, _Typed):
    """Read Parquet files, or a stage (the output of `ExtractToParquet`), as `Batch`es.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromParquet("trips.parquet") | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadFromWebDataset(ReadFromSource, _Typed):
    """Read WebDataset shards (``.tar``) as `Batch`es; a sample is a row, an extension a column.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromWebDataset("trips.tar") | bt.ToRows() | beam.Map(print)
        {'__key__': '00000', 'id': 1, 'fare': b'2.5'}
    """


class ReadFromArrow(ReadFromSource, _Arrow):
    """Read Arrow IPC files and streams, Feather V2 files, or data in memory, as `Batch`es.

    Data in memory is written once, when this transform is created, to a temporary file that exists
    until this process ends.

    Raises:
        UsageError: The arguments do not fit together, or the data in memory is no table.
        DataError: Values of a column in memory have no common type.
        StorageError: The temporary file cannot be written.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromArrow("trips.arrow") | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """

    def _source(self, options: dict[str, Any]) -> Source:
        readable = until_exit(options["paths"], options.pop("temp_dir"), options.pop("nan"))
        if isinstance(readable, OnDisk):
            return readable.source_of(columns=options["columns"])
        return super()._source(options | {"paths": readable})


class ReadFromNumpy(ReadFromSource, _Numpy):
    """Read NumPy arrays, from files or from memory, as `Batch`es.

    Arrays in memory are written once, when this transform is created, to a temporary file that
    exists until this process ends. The array of an .npy file is the column ``data``, the arrays of
    an .npz file are columns with their names, and each field of a structured dtype is a column.
    Several files have no default of `example`. `types` are dtypes of arrays that were saved as raw
    bytes, such as bfloat16.

    Raises:
        UsageError: The arguments do not fit together, such as `types` for arrays in memory.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromNumpy({"fare": np.float32([2.5])})
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'fare': 2.5}
    """

    def _source(self, options: dict[str, Any]) -> Source:
        paths, temp_dir = options["paths"], options.pop("temp_dir")
        if not isinstance(paths, Mapping | np.ndarray):
            return super()._source(options)
        if options.pop("types"):
            raise UsageError("arrays in memory have dtypes of their own: leave out types")
        if isinstance(paths, Mapping):
            paths = {name: np.asanyarray(array) for name, array in paths.items()}
        del options["paths"]
        readable = until_exit(paths, temp_dir)
        if readable.source is Memory:
            raise UsageError("Python objects in arrays have no dtype: read them by ReadFromArrow")
        made: Source = readable.source_of(**options)
        return made


class ReadFromImages(ReadFromSource, _Images):
    """Read images (JPEG, PNG, GIF, WebP, BMP, TIFF) as `Batch`es, one image per row.

    The paths are directories, globs and files; or tables (CSV, Parquet, JSON) of paths. A directory
    may have tables of metadata, such as ``metadata.jsonl``. `layout` is the meaning of the folders.
    ``class``: the first folder is the class. ``split``: the first folder is the split, and the
    second, if there is one, the class. ``flat``: folders have no meaning. None means that tables of
    metadata decide, or else the names of the folders. The paths of a table are in `path_column`, by
    default ``path``, or ``file_name`` of metadata. `check`: ``header`` checks format, size and end
    marks, ``decode`` all pixels.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromImages("photos/") | bt.ToRows()
        ...     _ = rows | beam.Map(lambda row: print(row["path"], row["label"]))
        cat/1.png 0
        dog/1.png 1
    """


class ReadFromCoco(ReadFromSource, _Coco):
    """Read images with annotated objects as `Batch`es, one image per row.

    The paths are COCO files of instances, such as ``instances_val2017.json``. Boxes are fractions
    of the width and height of the image. Areas and masks are in the pixels of the image as it is
    stored, and segmentations are as in the file. With `orient`, annotations are those of the
    upright image. The mask of an object is ``image/object/mask``, a PNG for each object, and that
    of classes ``mask``, a PNG for each image with the numbers of categories.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromCoco("objects.json", base="photos/")
        ...     _ = rows | bt.WriteToTFRecord("objects/")
    """


class ReadFromDelta(ReadFromSource, _Lake):
    """Read one version of a Delta Lake table as `Batch`es.

    Deletion vectors, mapped and added columns and partitions are honoured. `properties` are options
    of `deltalake` for the storage, such as ``{"AWS_REGION": "eu-west-1"}``.

    Raises:
        UsageError: There is no such table or version, or it has a feature that is not supported.

    Example:
        >>> with bt.pipeline() as p:
        ...     _ = p | bt.ReadFromDelta("trips_delta") | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadFromIceberg(ReadFromSource, _Lake):
    """Read one snapshot of an Apache Iceberg table as `Batch`es.

    Position deletes, renamed and added columns are honoured. The table is
    ``iceberg://catalog/database.table``, its metadata file or its directory. `properties` are those
    of the catalogue and its storage, such as ``{"type": "sql", "uri": "sqlite:///catalog.db"}``; by
    default those of pyiceberg's configuration.

    Raises:
        UsageError: There is no such table or snapshot, or it has a feature that is not supported.

    Example:
        >>> catalog = {"type": "sql", "uri": "sqlite:///catalog.db"}
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromIceberg("iceberg://c/ns.trips", properties=catalog)
        ...     _ = rows | bt.ToRows() | beam.Map(print)
        {'id': 1, 'fare': 2.5}
    """


class ReadFromSql(ReadFromSource, _Sql):
    """Read a table or a query of a database as `Batch`es, in parallel partitions of one snapshot.

    Put the password in an environment variable or a file on the machines that read. A password in
    the URL or in `password` works only with runners inside this process. `types` are types to read
    columns as, such as ``{"price": "text"}``; no cast loses information.

    Raises:
        UsageError: The arguments do not fit together.

    Example:
        >>> with bt.pipeline() as p:
        ...     rows = p | bt.ReadFromSql("sqlite:trips.db", table="trips")
        ...     _ = rows | bt.WriteToTFRecord("of_database/")
    """
