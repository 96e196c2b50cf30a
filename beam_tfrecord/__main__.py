"""Runs the command line for ``python -m beam_tfrecord``."""

from beam_tfrecord.cli.main import main

main()
