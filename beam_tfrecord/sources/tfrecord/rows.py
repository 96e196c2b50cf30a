"""Decodes the records of a unit into the columns of a schema."""

from __future__ import annotations

import re

import pyarrow as pa

from beam_tfrecord.errors import DataError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.manifest import Manifest
from beam_tfrecord.records.decoding import Decoder
from beam_tfrecord.records.tfrecord import RecordBlock
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.hive import with_partitions
from beam_tfrecord.sources.merging import fields_inside
from beam_tfrecord.sources.tfrecord.listing import ShardFile

_OF_RECORD = re.compile(r"record (\d+): (.*)", re.DOTALL)


class RowReader:
    """Decodes blocks of records of one file."""

    def __init__(self, file: InputFile, schema: pa.Schema, *, union: bool) -> None:
        inside = pa.schema([field for field in schema if field.name not in dict(file.partitions)])
        stored = Schema.from_arrow(inside)
        if isinstance(file, ShardFile):
            stored = Manifest.load(file.manifest).schema
            inside = pa.schema(fields_inside(schema, stored.names, file, union=union))
        self._file = file
        self._schema = schema
        self._inside = inside
        self._decoder = Decoder(stored, inside.names)

    def rows(self, block: RecordBlock) -> pa.RecordBatch:
        """Return the rows of a block."""
        try:
            found = self._decoder.decode(block.data, block.starts)
        except DataError as error:
            raise DataError(self._located(str(error), block)) from error
        for field, array in zip(self._inside, found.columns, strict=True):
            if array.null_count and not field.nullable:
                at = array.is_null().index(True).as_py()
                message = f"record {at}: a value of column {field.name!r} is missing"
                raise DataError(self._located(message, block))
        if len(self._inside):
            found = pa.RecordBatch.from_arrays(found.columns, schema=self._inside)
        return with_partitions(found, self._file, self._schema)

    def _located(self, message: str, block: RecordBlock) -> str:
        """Return a message with the number of the record within the file."""
        first, name = block.first_record, self._file.name
        if (found := _OF_RECORD.match(message)) is not None:
            return f"{name} record {first + int(found[1])}: {found[2]}"
        return f"{name}, in the records from {first} on: {message}"
