"""Check that films can be ranked, before sampling and again before ranking.

Separate from the ranking itself, so that the compile stage, which checks first, does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses.base import Shapes
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Latents, Model, Rows

__all__ = ["check_recommendation", "check_users", "check_watch_matrix", "watch_logits"]

REMEDY = "remove the key 'recommendation' from the experiment"


def watch_logits(model: Model, latents: Latents, inputs: Rows) -> jax.Array:
    """Return the logits of one draw, shape (users, films).

    Args:
        model: the model.
        latents: one draw; local latents hold the same users as `inputs`, along the model's own axes.
        inputs: name -> (users, ...).

    Raises:
        ConfigError: the model does not predict one Bernoulli per user and film.
    """
    predictive = model.predict(latents, inputs)
    if not isinstance(predictive, tfp.distributions.Bernoulli) or len(predictive.batch_shape) != 2:
        raise ConfigError(
            f"key 'recommendation': model {type(model).__name__} predicts {type(predictive).__name__} with batch "
            f"shape {tuple(getattr(predictive, 'batch_shape', ()))}; one Bernoulli per user and film is needed",
            REMEDY,
        )
    return predictive.logits_parameter()


def check_watch_matrix(shards: Shards) -> None:
    """Check that the data are a watch matrix.

    Raises:
        ConfigError: they are not.
    """
    if shards.kind != "interactions" or "watched" not in shards.fields:
        fields = ", ".join(sorted(shards.fields))
        raise ConfigError(
            f"key 'recommendation': the dataset is of kind '{shards.kind}' with the fields {fields}, not a watch matrix",
            REMEDY,
        )


def check_users(users: Sequence[int], num_users: int) -> None:
    """Check that chosen users are rows of the matrix.

    Raises:
        ConfigError: some are not; the message names them.
    """
    outside = [user for user in users if not 0 <= user < num_users]
    if outside:
        raise ConfigError(
            f"key 'recommendation.users': no row {', '.join(map(str, outside))}; valid rows are 0 to {num_users - 1}",
            "rows of the watch matrix are counted from 0, in the order of the source",
        )


def check_recommendation(model: Model, latents: Shapes, shards: Shards) -> None:
    """Check that films can be ranked for users, without computing anything.

    Args:
        model: the model.
        latents: name -> shape and dtype of one draw, for any number of users.
        shards: the data.

    Raises:
        ConfigError: the data are not a watch matrix, or the model has no latents per user or predicts something else.
    """
    name = type(model).__name__
    check_watch_matrix(shards)
    if not model.local_latents:
        raise ConfigError(f"key 'recommendation': model {name} has no latents per user", REMEDY)
    of_one_user = dict(latents)
    for latent, axis in model.local_latents.items():
        shape = list(latents[latent].shape)
        shape[axis] = 1
        of_one_user[latent] = jax.ShapeDtypeStruct(tuple(shape), latents[latent].dtype)
    inputs = {field: jax.ShapeDtypeStruct((1, *spec.shape), spec.dtype) for field, spec in shards.fields.items()}
    try:
        found = jax.eval_shape(lambda draw, rows: watch_logits(model, draw, rows), of_one_user, inputs).shape
    except KeyError as error:
        raise ConfigError(
            f"key 'recommendation': model {name} asks for {error}; the rows have {', '.join(sorted(inputs))}", REMEDY
        ) from error
    if found != inputs["watched"].shape:
        raise ConfigError(f"key 'recommendation': model {name} predicts shape {found} for one user", REMEDY)
