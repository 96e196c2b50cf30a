"""Datasets read back: Arrow, NumPy, tf.data, PyTorch."""
