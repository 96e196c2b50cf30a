"""Stages: any source as a Parquet dataset that later steps read in its place.

``types`` says what Parquet holds of each Arrow type; ``manifest`` what a stage is and where its
files are; ``writer`` writes the rows of a group of units; ``publish`` makes a stage of the files;
``transform`` and ``job`` tie them together inside and around a pipeline; ``verify`` checks one.
"""
