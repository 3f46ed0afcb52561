"""Models, kernels and sampling write array axes out; TFP and others may promote ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import pytest


@pytest.fixture(autouse=True)
def refusing() -> Iterator[None]:
    """Refuse as at the start of a run: a test that sets JAX up as a stage does leaves ranks free."""
    before = jax.config.jax_numpy_rank_promotion
    jax.config.update("jax_numpy_rank_promotion", "raise")
    # JAX looks at ranks when it traces: a sum of these shapes that another package has traced would pass.
    jax.clear_caches()
    yield
    jax.config.update("jax_numpy_rank_promotion", before)


def make_add(module: str) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Return a function that adds two arrays, as a function of that module."""
    namespace = {"__name__": module}
    exec(compile("def add(a, b):\n    return a + b", module, "exec"), namespace)
    return namespace["add"]


@pytest.mark.parametrize("folder", ["models", "kernels", "sampling"])
def test_ours_may_not_promote_ranks(folder: str) -> None:
    add = make_add(f"bayesmesh.{folder}.some_module")
    with pytest.raises(ValueError, match="could not be broadcast together"):
        add(jnp.ones(3), jnp.ones((4, 3)))
    assert add(jnp.ones((1, 3)), jnp.ones((4, 3))).shape == (4, 3)


def test_other_packages_may() -> None:
    assert make_add("tensorflow_probability.distributions")(jnp.ones(3), jnp.ones((4, 3))).shape == (4, 3)
