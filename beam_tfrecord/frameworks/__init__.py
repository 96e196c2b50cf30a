"""Adapters that give TensorFlow, Keras, PyTorch and Grain the batches of a dataset."""
