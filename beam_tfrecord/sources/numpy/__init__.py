"""The NumPy source, for .npy and .npz files and arrays in memory; `source` is its main module."""
