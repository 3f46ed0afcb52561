"""Show weights as images if the features of the data are the pixels of an image."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import zarr

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.sections import png_address
from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.learned.estimates import INTERVAL, READ_BYTES
from bayesmesh.store.arrays import read_part

MOST_CLASSES = 40

MOST_UNITS = 24

MOST_DRAWS = 1000
"""Largest number of draws used for an image, evenly spaced over all chains: 50 beyond each end of an interval."""

ABOVE, BELOW = (0, 114, 178), (213, 94, 0)
"""Colours of positive and of negative weights, for light and dark pages."""


@dataclasses.dataclass(frozen=True)
class WeightImages:
    """One image for each class or hidden unit.

    Attributes:
        images: names of classes or numbers of units, and their images as data URLs of PNG files.
        largest: absolute weight of a pixel in the darkest colour.
        share: share of the weights whose interval excludes 0; NaN for hidden units.
        note: note on how the images were made and how to read them.
    """

    images: Sequence[tuple[str, str]]
    largest: float
    share: float
    note: str


def draw_weights(reader: DrawReader, items: Sequence[Coordinate], shape: tuple[int, ...]) -> WeightImages | None:
    """Return weights as images, one per class.

    The likelihood identifies only differences between classes, so the mean over classes is subtracted. Pixels whose
    interval contains 0 stay empty.

    Args:
        reader: reader of the posterior.
        items: coordinates of the latent.
        shape: rows and columns of an image.

    Returns:
        The images; None unless all coordinates belong to one latent (pixel, class) with as many pixels and at most
        `MOST_CLASSES` classes.

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    first = items[0]
    array = reader.find(f"posterior/{first.variable}")
    if first.is_summary or array is None or array.ndim != 4 or array.shape[2] != math.prod(shape):
        return None
    num_classes = array.shape[3]
    if num_classes > MOST_CLASSES or len({item.variable for item in items}) > 1:
        return None
    mean, is_clear = _differences(array)
    # A NaN draw gives NaN quantiles, so its pixel stays empty.
    shown = np.where(is_clear, mean, 0.0)
    largest = float(np.abs(shown).max(initial=0.0))
    names = {item.index[1]: item.names.rpartition(",")[2] for item in items if item.names}
    images = [
        (names.get(number, str(number)), _png(shown[:, number].reshape(shape), largest))
        for number in range(num_classes)
    ]
    share = float(is_clear.mean())
    note = (
        f"Weights minus their mean over classes, which the data do not determine. Blue pixels raise the probability of the class, orange ones "
        f"lower it; the darkest colour is {formats.real(largest, 2)}. The 90% intervals of {formats.share(share)} of the "
        f"{formats.count(mean.size)} weights exclude 0; the other pixels stay empty."
    )
    return WeightImages(images, largest, share, note)


def draw_units(reader: DrawReader, name: str, shape: tuple[int, ...]) -> WeightImages | None:
    """Return the weights of up to `MOST_UNITS` hidden units at one draw as images, by descending sum of squares.

    Units swap places between chains, and sometimes within a chain, so an average over draws would mix them.

    Args:
        reader: reader of the posterior.
        name: name of the latent (input, unit); empty for none.
        shape: rows and columns of an image.

    Returns:
        The images; None if there is no such latent, or its inputs are not the pixels of an image.

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    array = reader.find(f"posterior/{name}") if name else None
    if array is None or array.ndim != 4 or array.shape[2] != math.prod(shape):
        return None
    last = array.shape[1] - 1
    weights = read_part(array, slice(0, 1), slice(last, last + 1), slice(None), slice(None))[0, 0].astype(np.float64)
    order = np.argsort(-np.square(weights).sum(axis=0), kind="stable")[:MOST_UNITS]
    largest = float(np.abs(weights[:, order]).max(initial=0.0))
    images = [(str(unit), _png(weights[:, unit].reshape(shape), largest)) for unit in order]
    note = (
        f"Weights of the {formats.count(len(order))} of {formats.count(weights.shape[1])} hidden units with the largest sums of squares, "
        f"at the last draw of chain 0. Blue pixels raise a unit, orange ones lower it; the darkest colour is {formats.real(largest, 2)}. "
        "Units swap places, so only one draw can be shown. Weights that the data do not determine follow the prior."
    )
    return WeightImages(images, largest, math.nan, note)


def _differences(array: zarr.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return means (feature, class) of weights minus their mean over classes, and whether their interval excludes 0."""
    num_chains, num_draws, num_features, num_classes = array.shape
    step = -(-num_chains * num_draws // MOST_DRAWS)
    mean, is_clear = np.empty((num_features, num_classes)), np.empty((num_features, num_classes), bool)
    width = max(1, READ_BYTES // (num_chains * num_draws * num_classes * array.dtype.itemsize))
    width = max(width, array.chunks[2]) if array.chunks[2] < num_features else width
    for start in range(0, num_features, width):
        part = slice(start, min(start + width, num_features))
        draws = read_part(array, slice(None), slice(None), part, slice(None))
        draws = draws.reshape(-1, *draws.shape[2:])[::step].astype(np.float64)
        draws -= draws.mean(axis=2, keepdims=True)
        low, high = np.quantile(draws, INTERVAL, axis=0)
        mean[part], is_clear[part] = draws.mean(axis=0), (low > 0) | (high < 0)
    return mean, is_clear


def _png(values: np.ndarray, largest: float) -> str:
    """Return an image as a data URL: the sign sets the colour, the square root of the relative size the opacity."""
    pixels = np.zeros((*values.shape, 4), np.uint8)
    pixels[values > 0, :3], pixels[values < 0, :3] = ABOVE, BELOW
    pixels[..., 3] = np.round(255 * np.sqrt(np.abs(values) / (largest or 1.0)))
    return png_address(pixels)
