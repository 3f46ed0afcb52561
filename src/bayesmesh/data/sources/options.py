"""Options of every source of this package, importable without the libraries that sources read with.

The class of `some_name` is `SomeNameOptions`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bayesmesh.config.settings import Files, Settings
from bayesmesh.data.tables.options import TableOptions as TableOptions


class ArraysOptions(Settings):
    """Options of `arrays`."""

    files: Files = Field(
        min_length=1,
        description="The file, or a list of files and patterns, relative to the folder of the project; the rows of "
        "several files are concatenated. A changed file is read again.",
        examples=[["data/counts.npz"]],
    )
    format: Literal["npz", "zarr", "netcdf", "hdf5", "json"] | None = Field(
        None,
        description="Format of the files; by default, determined by the file extension.",
        examples=["npz"],
    )
    arrays: dict[str, str] = Field(
        {},
        description="Field -> name of an array in the files, such as `group/x`; by default, all arrays under their own "
        "names. The first axis of each array runs over the rows; single numbers become constants.",
        examples=[{"y": "group/y"}],
    )
    constants: dict[str, float | int] = Field(
        {},
        description="Further constants that the model reads; they override those in the files.",
        examples=[{"num_classes": 10}],
    )


class DigitsOptions(Settings):
    """Options of `digits`."""

    test_fraction: float = Field(0.2, gt=0, lt=1, description="Share of each digit's images that become test rows.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the choice of test rows.")


class FilmsOptions(Settings):
    """Options of `films`."""

    num_users: int = Field(120, ge=2, le=10**6, description="Rows of the watch matrix.")
    num_films: int = Field(80, ge=2, le=10**6, description="Columns of the watch matrix.")
    width: int = Field(4, ge=1, le=4096, description="Dimension of the embeddings.")
    latent_scale: float = Field(1.0, gt=0, le=100, description="Standard deviation of embeddings and biases.")
    offset: float = Field(
        0.0, ge=-50, le=50, description="Added to every film bias; negative values make the matrix sparse."
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the simulation.")


class GaussianOptions(Settings):
    """Options of `gaussian`."""

    num_rows: int = Field(200, ge=1, le=10**9, description="Rows to simulate.")
    dimension: int = Field(2, ge=1, le=10**6, description="Length of a row.")
    noise_scale: float = Field(1.0, gt=0, le=1e6, description="Standard deviation of each entry about the mean.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the simulation.")


class HiddenMarkovOptions(Settings):
    """Options of `hidden_markov`."""

    num_processes: int = Field(
        70, ge=1, le=10**7, description="Number of processes, one per row; a smaller number keeps the first ones."
    )
    num_steps: int = Field(50, ge=1, le=10**5, description="Steps after the first observation of a process.")
    seed: int = Field(104109109, ge=0, lt=2**64, description="Seed of NumPy's default generator.")


class MnistOptions(Settings):
    """Options of `mnist`: there are none."""


class MovielensOptions(Settings):
    """Options of `movielens`."""

    values: Literal["watches", "ratings"] = Field(
        "watches",
        description="`watches`: a users x films matrix, 1 where the user rated the film. `ratings`: one row per rating, "
        "with the fields `user`, `film` and `rating`, 1 to 5.",
    )


class RatingsOptions(Settings):
    """Options of `ratings`."""

    num_users: int = Field(200, ge=2, le=10**7, description="Number of users; each rates at least one film.")
    num_films: int = Field(60, ge=2, le=10**6, description="Number of films.")
    mean_ratings: float = Field(
        20.0, ge=1, le=10**5, description="Mean number of ratings per user; some users have many more."
    )
    width: int = Field(2, ge=1, le=4096, description="Dimension of the embeddings.")
    bias_scale: float = Field(0.4, ge=0, le=100, description="Standard deviation of the biases, in stars.")
    factor_scale: float = Field(
        0.5, ge=0, le=100, description="Standard deviation of the contribution of the embeddings to a rating, in stars."
    )
    noise: float = Field(0.6, gt=0, le=100, description="Standard deviation of the noise, in stars.")
    stars: int = Field(
        0, ge=0, le=100, description="Round ratings to 1, 2, ... up to this number; 0 leaves them unrounded."
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the simulation.")
