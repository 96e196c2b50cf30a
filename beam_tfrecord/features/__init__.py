"""The type contract between Arrow columns and TensorFlow Examples.

`type_contract` decides which TF columns a column becomes; `convert_to_schema` and `arrow_to_tf`
convert the values. `beam_tfrecord.records.decoding` converts them back.
"""
