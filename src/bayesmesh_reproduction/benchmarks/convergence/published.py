"""The data of the two published experiments as the other samplers read them, whose environment has no TensorFlow Datasets.

They come from the folder that ``BAYESMESH_MIRROR`` names, as those of the sources `mnist` and `movielens` do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from bayesmesh.models.base import Latents

NUM_CELLS = 512
"""Cells of the watch matrix whose logits are assessed."""

type Read = tuple[Mapping[str, np.ndarray], Mapping[str, float | int]]


def read_mnist() -> Read:
    """Return ``features`` (60000, 784) uint8 and ``label`` (60000,) uint8, and the constants of the source `mnist`.

    Raises:
        FileNotFoundError: the files are not there.
    """
    from bayesmesh.data.sources.mnist import read_idx

    images, labels = (mirrored("mnist", f"train-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1"))
    features = read_idx(images)
    rows = {"features": features.reshape(len(features), -1), "label": read_idx(labels)}
    return rows, {"num_classes": 10, "feature_scale": 255}


def read_movielens() -> Read:
    """Return ``watched`` (6040, 3706) uint8: users and films by ascending id.

    Raises:
        FileNotFoundError: the files are not there.
    """
    from bayesmesh.data.sources.movielens import parse_files, read_folder

    folder = mirrored("ml-1m")
    parsed = parse_files(read_folder(folder), folder)
    users, films = (np.unique(parsed.ratings[:, axis], return_inverse=True)[1] for axis in (0, 1))
    watched = np.zeros((users.max() + 1, films.max() + 1), np.uint8)
    watched[users, films] = 1
    return {"watched": watched}, {}


def cells_of(latents: Latents) -> Latents:
    """Return logits of cells of the watch matrix, drawn by a seed, and the mean biases: embeddings rotate."""
    users, films = latents["user_embeddings"], latents["film_embeddings"]
    rng = np.random.default_rng(20261127)
    user, film = (rng.integers(len(side), size=NUM_CELLS) for side in (users, films))
    product = jnp.sum(users[user] * films[film], axis=1)
    return {
        "logit": product + latents["user_biases"][user] + latents["film_biases"][film],
        "mean_user_bias": latents["user_biases"].mean(),
        "mean_film_bias": latents["film_biases"].mean(),
    }


def mirrored(*parts: str) -> Path:
    """Return a file or folder below the one that BAYESMESH_MIRROR names.

    Raises:
        FileNotFoundError: it is not there.
    """
    path = Path(os.environ.get("BAYESMESH_MIRROR", "mirror"), *parts)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: set BAYESMESH_MIRROR to a folder with {parts[0]}")
    return path
