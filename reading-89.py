























































































import tensorflow as tf

spec = bt.load("out/").schema.feature_spec()
batches = tf.data.experimental.make_batched_features_dataset(
    "out/train-*.tfrecord",
    batch_size=64,
    features=spec,
    label_key="year",
    num_epochs=1,
)
