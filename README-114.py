
















































































































# examples.py
import sys

import apache_beam as beam
import beam_tfrecord as bt
import tensorflow as tf


class ToExample(beam.DoFn):
    def process(self, row):
        species = tf.train.BytesList(value=[row["species"].encode()])
        mass = tf.train.FloatList(value=[] if row["body_mass_g"] is None else [row["body_mass_g"]])
        feature = {"species": tf.train.Feature(bytes_list=species), "mass": tf.train.Feature(float_list=mass)}
        yield tf.train.Example(features=tf.train.Features(feature=feature))


if __name__ == "__main__":
    source, target, runner, *options = sys.argv[1:]
    with bt.pipeline(runner, options=options) as p:  # a beam.Pipeline
        (
            p
            | bt.ReadFromCsv(source)  # batches of columns
            | bt.ToRows()  # PCollection[dict]
            | beam.ParDo(ToExample())
            | bt.WriteToTFRecord(target, num_shards=4)  # the arguments of Beam's sink
        )
