








import sys, time
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions


def emit(_):
    end, n = time.monotonic() + 4, 0
    while time.monotonic() < end:
        yield n
        n += 1
    print("emitted", n)


sys.setswitchinterval(1e-5)  # makes the race likely; it is lost without this line, too
options = PipelineOptions(direct_running_mode="multi_threading")
with beam.Pipeline("FnApiRunner", options=options) as p:
    emitted = p | beam.Create([None]) | beam.FlatMap(emit) | beam.Reshuffle()
    emitted | beam.combiners.Count.Globally() | beam.Map(lambda n: print("arrived", n))
