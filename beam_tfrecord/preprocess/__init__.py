"""Preprocessing with tensorflow-transform: statistics of the train split, applied to every row.

    request.py    what a user asks for, as a value
    steps.py      declarative steps, and their checks before any data is read
    functions.py  steps as one preprocessing function of TFT operations
    moments.py    exact, order-free mean and variance
    ports.py      which columns TensorFlow sees, and as what
    adapter.py    batches to TFT's record batches and to tensors, and tensors back to columns
    fitted.py     the saved function: made repeatable, described, opened, applied
    stage.py      `Preprocess`, the transform

TensorFlow is imported inside the functions that need it, here and nowhere else on the way of a row.
"""
