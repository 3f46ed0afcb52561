"""Compute logits of users and films, check that they exist, and read the rows and draws of chosen users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses.base import Shapes, asking_model, check_predictive, draw_shapes, unsuitable
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.store.posterior.reader import Posterior

KEY = "recommendation"


def watch_logits(model: Model, latents: Latents, inputs: Rows) -> jax.Array:
    """Return the logits of one draw, shape (users, films).

    Args:
        model: the model.
        latents: one draw; local latents hold the same users as `inputs`, along the model's own axes.
        inputs: name -> (users, ...).

    Raises:
        ConfigError: the model does not predict one Bernoulli per user and film.
    """
    kind, needed = tfp.distributions.Bernoulli, "one Bernoulli per user and film is needed"
    return check_predictive(KEY, model, model.predict(latents, inputs), kind, 2, needed).logits_parameter()


def check_recommendation(model: Model, latents: Shapes, shards: Shards) -> None:
    """Check that films can be ranked for users, without computing anything.

    Args:
        model: the model.
        latents: name -> shape and dtype of one draw, for any number of users.
        shards: the data.

    Raises:
        ConfigError: the data are not a watch matrix, or the model has no latents per user or predicts something else.
    """
    if shards.kind != "interactions" or "watched" not in shards.fields:
        fields = ", ".join(sorted(shards.fields))
        raise unsuitable(KEY, f"the dataset is of kind '{shards.kind}' with the fields {fields}, not a watch matrix")
    if shards.unseen() is not None and not model.folds_in:
        raise ConfigError(
            f"key 'data.held_out_users': model {type(model).__name__} does not declare `folds_in`",
            "remove held_out_users: new users are folded in where logits are products of embeddings, as in matrix_factorization",
        )
    if not model.local_latents:
        raise unsuitable(KEY, f"model {type(model).__name__} has no latents per user")
    of_one_user: dict[str, Any] = dict(latents)
    for latent, axis in model.local_latents.items():
        shape = list(latents[latent].shape)
        shape[axis] = 1
        of_one_user[latent] = jax.ShapeDtypeStruct(shape, latents[latent].dtype)
    inputs = {field: jax.ShapeDtypeStruct((1, *spec.shape), spec.dtype) for field, spec in shards.fields.items()}
    with asking_model(KEY, model, list(inputs)):
        found = jax.eval_shape(lambda draw, rows: watch_logits(model, draw, rows), of_one_user, inputs).shape
    if found != inputs["watched"].shape:
        raise unsuitable(KEY, f"model {type(model).__name__} predicts shape {found} for one user")


def check_inputs(model: Model, spec: DataSpec, posterior: Posterior, shards: Shards) -> None:
    """Check that films can be ranked for users with these draws, without computing anything.

    Raises:
        ConfigError: see `check_recommendation`.
        StoreError: the posterior and the data differ in the number of users.
    """
    latents = draw_shapes(posterior, spec.dtype)
    check_recommendation(model, latents, shards)
    for latent, axis in model.local_latents.items():
        found = latents[latent].shape[axis]
        if found != shards.num_rows:
            problem = f"{posterior.path}: '{latent}' has {found} users, the data {shards.num_rows}"
            raise StoreError(problem, "run the sample stage again")


def read_users(shards: Shards, users: np.ndarray, block_rows: int = 8192) -> dict[str, np.ndarray]:
    """Return the training rows of some users: name -> (users, ...), in the order of `users`.

    Reads at most `block_rows` rows at a time, and only ranges that contain a requested user.
    """
    parts: dict[str, np.ndarray] = {}
    for start in range(0, shards.num_rows, block_rows):
        inside = np.flatnonzero((users >= start) & (users < start + block_rows))
        if not len(inside):
            continue
        first, last = int(users[inside].min()), int(users[inside].max())
        for name, values in shards.read_rows(first, last + 1).items():
            if name not in parts:
                parts[name] = np.empty((len(users), *values.shape[1:]), values.dtype)
            parts[name][inside] = values[users[inside] - first]
    return parts


def take_users(model: Model, users: np.ndarray, name: str, values: np.ndarray) -> np.ndarray:
    """Return a latent of a block of draws, (draws, ...), restricted to `users` if it is local."""
    return np.take(values, users, _user_axis(model, name, values)) if name in model.local_latents else values


def split_latents(model: Model, block: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return local latents, name -> (users, draws, ...), and the others, name -> (draws, ...)."""
    local = {name: np.moveaxis(block[name], _user_axis(model, name, block[name]), 0) for name in model.local_latents}
    return local, {name: values for name, values in block.items() if name not in local}


def _user_axis(model: Model, name: str, values: np.ndarray) -> int:
    return model.local_latents[name] % (values.ndim - 1) + 1
