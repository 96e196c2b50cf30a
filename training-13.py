











import beam_tfrecord as bt
import keras
import tensorflow as tf

NUMBERS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]


def batches(split):
    return bt.load("out/", split=split).tf(
        batch_size=32,
        columns=[*NUMBERS, "island"],
        label="species",
        defaults=dict.fromkeys(NUMBERS, 0),
        shuffle=split == "train",
    )


species = keras.layers.StringLookup(vocabulary=["Adelie", "Chinstrap", "Gentoo"], num_oov_indices=0)
islands = ["Biscoe", "Dream", "Torgersen"]
island = keras.layers.StringLookup(vocabulary=islands, num_oov_indices=0, output_mode="one_hot")


def encoded(features, label):
    numbers = [tf.cast(features[name], tf.float32)[:, None] / 100 for name in NUMBERS]
    places = tf.cast(island(features["island"]), tf.float32)
    return tf.concat([*numbers, places], axis=1), species(label)  # shapes [rows, 7] and [rows]


train, test = batches("train").map(encoded), batches("test").map(encoded)
model = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(3, "softmax")])
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(train, validation_data=test, epochs=2, shuffle=False, verbose=0)  # tf() shuffles
