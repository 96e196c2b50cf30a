"""Schemas, and the conversion of Arrow columns to the features of TensorFlow Examples.

A `Schema` holds a `Feature` for each column. A *TF column* is one key of `tf.train.Example`:
`tf_columns` decides which TF columns a column becomes. `cast_to_schema` converts columns to
the types of a schema, and `arrow_to_tf` converts these to TF columns.
`beam_tfrecord.records.decoding` converts TF columns back. `feature_spec` describes a schema to
TensorFlow.
"""
