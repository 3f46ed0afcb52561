"""Check that predictions can be averaged and scored, before sampling and again before averaging.

Separate from the averaging itself, so that the compile stage, which checks first, does not depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses.base import Shapes
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Latents, Model, Rows

__all__ = ["check_averaging", "class_probabilities"]

REMEDY = "remove the key 'averaging' from the experiment"


def class_probabilities(model: Model, latents: Latents, inputs: Rows) -> jax.Array:
    """Return the predictive probabilities of one draw, shape (rows, classes).

    Raises:
        ConfigError: the model does not predict one category per row.
    """
    predictive = model.predict(latents, inputs)
    if not isinstance(predictive, tfp.distributions.Categorical) or len(predictive.batch_shape) != 1:
        raise ConfigError(
            f"key 'averaging': model {type(model).__name__} predicts {type(predictive).__name__} with batch shape "
            f"{tuple(getattr(predictive, 'batch_shape', ()))}; only one Categorical per row can be averaged and scored",
            REMEDY,
        )
    return predictive.probs_parameter()


def check_averaging(model: Model, latents: Shapes, test_rows: Mapping[str, np.ndarray]) -> tuple[np.ndarray, int]:
    """Return labels, (rows,) int32, and the number of classes, without computing a prediction.

    Args:
        model: the model.
        latents: name -> shape and dtype of one draw.
        test_rows: name -> (rows, ...), with the outcome.

    Raises:
        ConfigError: no test rows, no labels, a model with local latents, or one without categorical predictions.
    """
    name = type(model).__name__
    if model.local_latents:
        local = ", ".join(sorted(model.local_latents))
        raise ConfigError(
            f"key 'averaging': model {name} has latents for each training row ({local}), but none for test rows", REMEDY
        )
    if not test_rows or not len(next(iter(test_rows.values()))):
        raise ConfigError("key 'averaging': the dataset has no test rows to score on", REMEDY)
    inputs = {field: jax.ShapeDtypeStruct(values.shape, values.dtype) for field, values in test_rows.items()}
    try:
        shape = jax.eval_shape(lambda draw, rows: class_probabilities(model, draw, rows), latents, inputs).shape
        labels = np.asarray(model.outcome({field: jax.numpy.asarray(v) for field, v in test_rows.items()}))
    except NotImplementedError as error:
        raise ConfigError(f"key 'averaging': {error}", REMEDY) from error
    except KeyError as error:
        raise ConfigError(
            f"key 'averaging': model {name} asks for {error}; the test rows have {', '.join(sorted(test_rows))}", REMEDY
        ) from error
    is_label = labels.dtype.kind in "iub" and labels.shape == shape[:1]
    if not is_label or labels.min() < 0 or labels.max() >= shape[1]:
        raise ConfigError(
            f"key 'averaging': model {name}: outcomes must be {shape[0]} integer labels from 0 to {shape[1] - 1}",
            REMEDY,
        )
    return labels.astype(np.int32), shape[1]
