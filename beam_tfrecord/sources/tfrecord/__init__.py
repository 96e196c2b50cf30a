"""Reads TFRecord files: the shards of datasets, and files of other programs."""
