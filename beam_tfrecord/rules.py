"""The history of the changes to this package that altered the bytes of datasets.

The number of entries is part of the fingerprint of a job. So a dataset that was written before such
a change is never mistaken for the result of the same job with the present code.
"""

from __future__ import annotations

RULES: tuple[str, ...] = (
    # Oldest first: the affected input, and the bytes that are written for it now. Append only.
    "INT96 timestamps of Parquet outside the years 1677 to 2262 are exact, in microseconds",
    "every stream of an .xz file is read, also after padding, and a damaged one is refused",
    "compressed files of 0 bytes are refused",
    "decimals, and numbers as text, are rounded to float32 once, and losses that float64 hid count",
    "floats of CSV files with the store text are stored as the text in the file",
    "both zeros, and all NaNs, count as equal in groups and keys, and a zero range is 0.0",
    "GIFs have the width and height of their largest frame, which is what TensorFlow decodes",
    "GIFs without a frame, and PNGs whose IDAT chunks are all empty, are rejected",
    "extended WebPs have 4 channels if their pixels are transparent, whatever their flags say",
    "images that TensorFlow refuses are re-encoded by --format png and --format jpeg "
    "even if they have that format",
    "resized images have original_width and original_height",
    'columns of CSV files that hold nothing but "" are text',
    "rejected images of folders name their own file as their unit",
    "categories with line breaks or backslashes have their own numbers, escaped in the vocabulary",
    "datasets with a fitted function have metadata/schema.pbtxt, the schema of its inputs",
    "FLOAT of MariaDB and MySQL has all of its digits, and unsigned floats are floats",
    "numbers of SQLite that a given narrower float does not hold are rejected",
    "decimals of databases that are too fine for a given type are rejected",
    "fractions in NUMERIC columns of SQLite by jdbc: are read if a float type is given",
    "numbers that are stored as zero count as zero in groups and keys, whatever their sign",
    "INT96 timestamps of Parquet are in microseconds only in columns that need it, also in maps",
    "floats of CSV files that a map gives back as they were are stored as their text with the "
    "store text, and rounded once under a schema of float32 and from functions of batches",
    "mapped numbers that are beyond a schema of float32 are rejected, not infinite",
    "generated columns of tables of SQLite are read",
    "rows of several readers that come through side inputs of other code are shuffled apart, which "
    "gives all inputs after such a side input another number",
    "NaNs are counted in the statistics of their column",
    "rows of CSV files with text behind a closing quote are rejected, and a broken row counts as "
    "its lines",
    "NamedTuples inside rows are structs, not lists",
    "copies of a record are spread over a part of their shard, unless a key decides the order",
    "structs whose fields are all null count as missing, and are counted in the statistics",
    "--check decode rejects images that --check header rejects, and PNGs whose pixels end early",
    "times of Excel are exact to the microsecond, and escapes in its texts are decoded",
    "texts and mixed columns of Excel are parsed if --types gives them a type",
    "splits that have a share but get no rows are in the manifest",
    "columns that row functions add, and those of rows of other code, have the order of the rows",
    "integers of WebDataset with underscores or digits of other scripts are rejected",
    "INT96 timestamps of Parquet are in microseconds, and refused if they are finer",
)
