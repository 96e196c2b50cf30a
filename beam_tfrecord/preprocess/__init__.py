"""Preprocessing with tensorflow-transform: statistics of the train split, applied to every row.

    steps.py           declarative steps, and their checks before any data is read
    moments.py         exact mean and variance, in any order
    operations.py      the steps as TFT operations
    tensor_columns.py  which columns TensorFlow sees; batches to tensors, tensors to columns
    fitted.py          the saved function: repeatable, described, loaded, applied
    request.py         what a user asks for, and the plan for the columns of the input
    transform.py       `Preprocess`, the public transform

TensorFlow loads with `operations` or inside functions, only in jobs that preprocess.
"""
