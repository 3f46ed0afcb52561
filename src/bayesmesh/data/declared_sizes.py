"""Reject arrays and texts that are far larger than the file that holds them."""

from __future__ import annotations

from pathlib import Path

from bayesmesh.errors import DataError

MOST_EXPANSION = 200
"""Largest ratio of the size of large contents to that of their file; zeros reach about 1000."""

LEAST_BYTES = 2**30
"""Size of arrays below which their expansion is not checked."""

LEAST_TEXT = 2**26
"""The same for texts, of which all bytes are parsed."""

MOST_PIECE = 2**29
"""Largest number of bytes that can only be read together, such as a chunk."""


def check_size(path: Path, what: str, num_bytes: int, stored: int, piece: int = 0, least: int = LEAST_BYTES) -> None:
    """Reject contents that expand as no measurements do, or that must be read in too large pieces.

    Args:
        path: the file.
        what: its part, for the message.
        num_bytes: size of the contents, as declared or as read so far.
        stored: number of bytes of the file in which they are stored.
        piece: size of the largest part that must be read at once.
        least: size below which contents may expand.

    Raises:
        DataError: names the file and the part.
    """
    if num_bytes > least and num_bytes > MOST_EXPANSION * stored:
        raise DataError(
            f"{path}: {what} would expand from {stored:,} bytes to {num_bytes:,} or more",
            "if these are data, store them without compression",
        )
    if piece > MOST_PIECE:
        raise DataError(
            f"{path}: {what} must be read in pieces of {piece:,} bytes", "store it in chunks of a few megabytes"
        )
