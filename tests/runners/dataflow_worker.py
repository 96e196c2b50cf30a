"""A worker of the loopback Dataflow: runs a staged pipeline with the staged packages alone.

Started as ``dataflow_worker.py DIRECTORY``, which holds ``pipeline.pb`` and the
packages. What goes wrong is told on stderr, as a worker logs it.
"""

import logging
import sys
import traceback
import zipfile
from pathlib import Path


def install(directory):
    """Unpack the wheels in their order, to be found before anything that is installed here."""
    listed = directory / "extra_packages.txt"
    names = listed.read_text().split() if listed.exists() else []
    for name in names:
        with zipfile.ZipFile(directory / name) as wheel:
            wheel.extractall(directory / "packages")
    sys.path.insert(0, str(directory / "packages"))


def run(directory):
    """Run the pipeline in this process."""
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability import python_urns
    from apache_beam.portability.api import beam_runner_api_pb2
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    import beam_tfrecord

    packages = directory / "packages"
    if any(packages.glob("beam_tfrecord/__init__.py")):
        place = Path(beam_tfrecord.__file__)
        assert place.is_relative_to(packages), f"beam_tfrecord is from {place}"
    pipeline = beam_runner_api_pb2.Pipeline.FromString((directory / "pipeline.pb").read_bytes())
    for environment in pipeline.components.environments.values():
        # What would be a container of the worker's image is this process.
        environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
    result = FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([]))
    result.wait_until_finish()


def main():
    """Run, and tell of a failure alone."""
    logging.disable(logging.CRITICAL)
    directory = Path(sys.argv[1])
    install(directory)
    try:
        run(directory)
    except Exception:
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
