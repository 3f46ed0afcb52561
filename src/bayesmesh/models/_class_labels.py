"""Check the labels of a classification: a categorical log probability is 0 at a label that is not a class."""

from __future__ import annotations

import numpy as np

from bayesmesh.errors import ConfigError
from bayesmesh.models.base import ReadBlocks


def check_labels(field: str, num_classes: int, read_blocks: ReadBlocks) -> None:
    """Check that all labels are whole numbers from 0 to the number of classes less 1.

    Args:
        field: field with the labels.
        num_classes: number of classes.
        read_blocks: returns an iterator over all rows in blocks.

    Raises:
        ConfigError: some are not; the message counts them and shows the first.
    """
    parts = [rows[field] for rows in read_blocks()]
    labels = np.concatenate([each[~((each >= 0) & (each < num_classes) & (each == np.floor(each)))] for each in parts])
    if labels.size:
        raise ConfigError(
            f"field '{field}': {labels.size} rows have labels that are not classes, such as {labels.flat[0]:g}; with "
            f"num_classes: {num_classes}, labels are the whole numbers 0 to {num_classes - 1}",
            "count classes from 0, and set the constant `num_classes` to their number; or declare the column as a category",
        )
