


















































































import beam_tfrecord as bt
import keras
import tensorflow as tf
from penguin import NUMBERS


def stacked(features, species):
    return tf.stack([features[name] for name in NUMBERS], axis=1), species  # shapes [rows, 4] and [rows]


train = bt.load("penguins/", split="train").tf(batch_size=32, label="species", shuffle=True).map(stacked)
test = bt.load("penguins/", split="test").tf(batch_size=32, label="species").map(stacked)

scale = keras.layers.Normalization()
scale.adapt(train.map(lambda numbers, species: numbers))
model = keras.Sequential([scale, keras.layers.Dense(16, "relu"), keras.layers.Dense(3, "softmax")])
model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(train, validation_data=test, epochs=20, shuffle=False, verbose=0)  # tf() shuffles
print(f"accuracy on test: {model.evaluate(test, verbose=0)[1]:.2f}")
