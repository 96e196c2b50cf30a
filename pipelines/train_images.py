"""From a directory of pictures, one folder a class, to a trained Keras model, in one file.

    python pipelines/train_images.py --input photos/ --dataset dataset/ --size 64 --epochs 10

The dataset is written once: a second run finds it there, and trains at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import keras

import beam_tfrecord as bt


def make_model(size: int, classes: int) -> keras.Model:
    """Return a small convolutional model of RGB pictures, float32 from 0 to 255."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((size, size, 3)),
            layers.Rescaling(1 / 127.5, offset=-1),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(64, activation="relu"),
            layers.Dense(classes),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
    return model


def main(argv: Sequence[str] | None = None) -> float:
    """Write the dataset, train, and return the accuracy on the pictures held out."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--input", required=True, help="directory of pictures")
    parser.add_argument("--dataset", required=True, help="directory of the dataset, ends in /")
    parser.add_argument("--size", type=int, default=64, help="side of the pictures in pixels")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)

    keras.utils.set_random_seed(arguments.seed)
    # Damaged pictures are left out, and told with their reasons in rejects/.
    bt.write(
        arguments.input, arguments.dataset, splits={"train": 0.8, "test": 0.2}, max_rejects="any"
    )
    train, test = (bt.load(arguments.dataset, split=split) for split in ("train", "test"))
    options = {"label": "label", "image_size": (arguments.size, arguments.size)}
    batch = arguments.batch_size

    model = make_model(arguments.size, len(train.schema["label"].labels))
    model.fit(
        train.tf(batch, shuffle=True, seed=arguments.seed, **options),
        validation_data=test.tf(batch, **options),
        epochs=arguments.epochs,
        verbose=2,
    )
    _, accuracy = model.evaluate(test.tf(batch, **options), verbose=0)
    print(f"accuracy on {len(test):,} pictures held out: {accuracy:.3f}")
    return float(accuracy)


if __name__ == "__main__":
    main()
