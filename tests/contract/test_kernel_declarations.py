"""Shapes and declarations of a kernel, for every kernel of the registry: nothing is compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bayesmesh.kernels.base import Axes, Kernel
from kernel_options import kernels_of_any_target
from kernel_runs import NUM_CHAINS, Box, Chains, advance, begin, initial_position, key_at, make


@pytest.fixture(scope="module", params=kernels_of_any_target())
def kernel(request) -> Kernel:
    return make(request.param)


def abstract(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_leaves_shapes_and_dtypes_as_they_are(kernel, dtype) -> None:
    target = Box(dtype=dtype)
    before = jax.eval_shape(lambda q: begin(kernel, target, q), initial_position(dtype=dtype))
    after, _ = jax.eval_shape(lambda c: advance(kernel, target, c, jnp.asarray(0)), before)
    assert abstract(after) == abstract(before)
    position = before.state.position
    assert abstract(position) == abstract(initial_position(dtype=dtype))
    for name in ("log_prior", "log_likelihood"):
        assert abstract(getattr(before.state, name)) == ((NUM_CHAINS,), "float64"), name


def test_tuning_has_the_same_shapes_in_warmup_and_after(kernel) -> None:
    chains = jax.eval_shape(lambda q: begin(kernel, Box(), q), initial_position())
    in_warmup, after = (
        jax.eval_shape(lambda a, b=b: kernel.tuning(a, jnp.asarray(b)), chains.adaptation) for b in (True, False)
    )
    assert abstract(in_warmup) == abstract(after)


def test_declared_axes_are_those_that_vary(kernel) -> None:
    """An axis grows with the number of chains, or of entries, exactly where the kernel declares it."""
    declared = Chains(kernel.state_axes(), kernel.adaptation_axes())

    def shapes(num_chains: int, behind: int) -> Any:
        return jax.eval_shape(
            lambda q: begin(kernel, Box(behind=behind), q), initial_position(num_chains=num_chains, behind=behind)
        )

    few, more_chains, more_entries = shapes(NUM_CHAINS, 0), shapes(2 * NUM_CHAINS, 0), shapes(NUM_CHAINS, 3)

    def check(axes: Axes, small: Any, of_chains: Any, of_entries: Any) -> None:
        assert isinstance(axes, Axes)
        assert len(axes.names) <= small.ndim
        names = axes.names + (None,) * (small.ndim - len(axes.names))
        for i, name in enumerate(names):
            assert (of_chains.shape[i] != small.shape[i]) == (name == "chain"), (axes, small)
            assert (of_entries.shape[i] != small.shape[i]) == (name == "entry"), (axes, small)

    jax.tree.map(check, declared, few, more_chains, more_entries, is_leaf=lambda x: isinstance(x, Axes))


def test_the_kernel_says_what_it_is_and_what_it_costs(kernel) -> None:
    assert kernel.pretty_name
    assert kernel.reference
    assert kernel.expected_gradients() >= 1
    assert kernel.min_chains >= 1
    assert kernel.chain_multiple >= 1
    for num_chains in range(kernel.chain_multiple, 20, kernel.chain_multiple):
        assert 1 <= kernel.num_chains_reported(num_chains) <= num_chains


def test_kernels_restart_chains_only_where_they_declare_it(kernel) -> None:
    is_declared = kernel.restarts_chains
    assert ("restart_lost_chains" in type(kernel.options).model_fields) == is_declared
    assert ("restarted" in kernel.statistics) == is_declared
    moved = []

    def restart(chains: Chains) -> None:
        info = kernel.step(key_at(0), chains.state, Box(), kernel.tuning(chains.adaptation, is_adapting=True))[1]
        moved.append(kernel.restart(chains.adaptation, chains.state, info)[0] is not chains.state)

    jax.eval_shape(lambda q: restart(begin(kernel, Box(), q)), initial_position())
    assert moved == [is_declared]
