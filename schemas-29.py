



























import beam_tfrecord as bt

schema = bt.schema("penguins.csv", null_words=["NA"])
print(schema.names)
