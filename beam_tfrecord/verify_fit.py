"""Whether records are examples of a schema, and which record is the first that is not."""

from __future__ import annotations

import re

from beam_tfrecord import native
from beam_tfrecord.decoding import Decoder
from beam_tfrecord.errors import DataError
from beam_tfrecord.leaves import schema_leaves
from beam_tfrecord.native.values import KIND_NAMES
from beam_tfrecord.reader_blocks import RecordBlock
from beam_tfrecord.schema import Schema

_BLOCK_RECORD = re.compile(r"^record \d+: ")


class SchemaFit:
    """Tells whether records are examples of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._decoder = Decoder(schema)
        self._leaves = {leaf.name: leaf for column in schema_leaves(schema) for leaf in column}

    def first_misfit(self, block: RecordBlock) -> tuple[int, str] | None:
        """Return the number within the file, and the fault, of a block's first misfit."""
        if self._problem(block) is None:
            return None
        # The shortest beginning of the block that does not fit ends with the record at fault.
        low, high = 0, len(block.starts)
        while high - low > 1:
            middle = (low + high) // 2
            if self._problem(block.slice(low, middle)) is None:
                low = middle
            else:
                high = middle
        one = block.slice(low, high)
        return one.first_record, self._problem(one) or "does not fit the schema"

    def _problem(self, block: RecordBlock) -> str | None:
        try:
            found = native.discover(block.data, block.starts)
            for name, feature in found.items():
                text = name.decode("utf-8", "backslashreplace")
                leaf = self._leaves.get(text)
                if leaf is None:
                    return f"feature {text!r} is not in the schema"
                if feature.kind != leaf.kind:
                    return (
                        f"feature {text!r} is {KIND_NAMES[feature.kind]}, the schema says "
                        f"{KIND_NAMES[leaf.kind]}"
                    )
            for leaf in self._leaves.values():
                seen = found.get(leaf.name.encode())
                if not leaf.nullable and (seen.present_count if seen else 0) < len(block.starts):
                    return f"feature {leaf.name!r} is missing, the schema says it never is"
            self._decoder.decode(block.data, block.starts)
        except (ValueError, DataError) as error:
            # The kernel counts records within the block, which nobody sees.
            return _BLOCK_RECORD.sub("", str(error))
        return None
