"""Put small images into a page."""

from __future__ import annotations

import base64
import io

import numpy as np


def png_address(pixels: np.ndarray) -> str:
    """Return an image as a data URL that holds a PNG.

    Args:
        pixels: uint8, shape (row, column) for grey, or (row, column, 4) for red, green, blue and opacity.

    >>> png_address(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    from PIL import Image  # a tenth of a second that pages without images need not wait for

    out = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
