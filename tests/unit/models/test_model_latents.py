"""Local latents follow the rows along the axis that the model names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from bayesmesh.models._latents import align_local
from bayesmesh.models.base import Model


class WithUsers(Model):
    pretty_name = "With users"
    offers = ()
    local_latents: ClassVar[Mapping[str, int]] = {"users": 1}

    def __init__(self) -> None:
        pass

    prior = log_likelihood = predict = summaries = lambda *_: None  # type: ignore[assignment]


def test_local_latents_follow_the_rows() -> None:
    draw = {"users": jnp.arange(6.0).reshape(2, 3), "level": jnp.ones(())}
    found = align_local(WithUsers(), draw, np.array([2, 0, 2, 1]))
    np.testing.assert_array_equal(found["users"], [[2, 0, 2, 1], [5, 3, 5, 4]])
    assert found["level"] is draw["level"]
