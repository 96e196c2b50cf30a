"""Preprocesses rows with tensorflow-transform (TFT), by statistics of the train split.

TFT computes statistics from the rows of one split. A function with these statistics in it, the
*fitted* function, then transforms every row.

    steps.py           preprocessing steps, and checks of them before any data is read
    operations.py      the steps as functions that call TFT
    tft_conversion.py  conversion of batches to tensors, and of tensors to columns
    fitted.py          saves, describes, loads and applies the fitted function and vocabularies
    request.py         the user's request, and the plan for the columns of the input
    transform.py       `Preprocess`, the public transform

TensorFlow is imported by `operations` and inside functions, so only in jobs that preprocess.
"""
