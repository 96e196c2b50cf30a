"""``python -m beam_tfrecord``: the command line."""

from beam_tfrecord.cli.main import main

main()
