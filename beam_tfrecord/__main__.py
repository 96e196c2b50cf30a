"""``python -m beam_tfrecord``: the command line."""

from beam_tfrecord.cli import main

main()
