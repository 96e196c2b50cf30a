"""The program that a Flex Template's launcher starts."""

from beam_tfrecord.cli.dataflow_template import main

if __name__ == "__main__":
    main()
