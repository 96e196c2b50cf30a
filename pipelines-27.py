

























import apache_beam as beam
import tensorflow as tf


class ToExample(beam.DoFn):
    def process(self, row):
        values = [row["year"], row["body_mass_g"] or 0, row["flipper_length_mm"] or 0]
        numbers = tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        yield tf.train.Example(features=tf.train.Features(feature={"numbers": numbers}))


with bt.pipeline() as p:
    (
        p
        | bt.ReadFromCsv("penguins.csv")
        | bt.ToRows()  # PCollection[dict]
        | beam.ParDo(ToExample())
        | bt.WriteToTFRecord("examples/part", num_shards=8)  # examples/part-00000-of-00008, …
    )
