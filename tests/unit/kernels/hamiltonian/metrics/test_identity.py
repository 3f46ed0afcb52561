"""The identity metric, and what all metrics share: momenta and masks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.blocks import METRICS
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics import load_metric
from bayesmesh.kernels.hamiltonian.metrics.base import Metric, apply_mask, count_finite, standard_normal
from bayesmesh.kernels.hamiltonian.metrics.identity import IdentityMetric

NUM_CHAINS = 4
KEYS = jax.random.split(jax.random.key(0), NUM_CHAINS)


def ones(num_entries: int = 3, dtype: str = "float64") -> Position:
    return Position(jnp.ones((NUM_CHAINS, 2), dtype), jnp.ones((NUM_CHAINS, num_entries, 2), dtype))


def mask(num_entries: int, num_living: int) -> Position:
    return Position(None, (jnp.arange(num_entries) < num_living).astype(jnp.float64)[:, None])


def test_nothing_is_changed_and_nothing_is_learnt() -> None:
    metric, position = IdentityMetric(), ones()
    assert not metric.is_adaptive
    data = metric.init(position, Position(None, None))
    for made in (metric.move, metric.whiten_gradient, metric.whiten_position):
        assert made(data, position) is position
    estimate = metric.update_estimate(metric.init_estimate(position), position, position)
    assert (data, estimate) == ((), ())
    assert (metric.data_axes(), metric.estimate_axes()) == ((), ())


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_found_by_its_file(name: str) -> None:
    metric = load_metric(name)
    assert isinstance(metric, Metric)
    assert type(metric).__module__.endswith(f".{name}")


def test_momenta_are_zero_where_the_mask_is() -> None:
    drawn = standard_normal(KEYS, ones(), mask(3, 2))
    assert not drawn.local[:, 2:].any()
    assert drawn.local[:, :2].all()
    assert drawn.shared.all()


def test_every_chain_coordinate_and_part_has_its_own_number() -> None:
    drawn = standard_normal(KEYS, ones(), Position(None, None))
    values = np.concatenate([np.asarray(x).ravel() for x in drawn])
    assert len(np.unique(values)) == values.size


def test_padding_changes_no_number() -> None:
    """Neither the entries behind the last nor the other chains; so draws do not depend on the number of devices."""
    few, many = standard_normal(KEYS, ones(3), mask(3, 3)), standard_normal(KEYS, ones(8), mask(8, 3))
    np.testing.assert_array_equal(many.local[:, :3], few.local)
    np.testing.assert_array_equal(many.shared, few.shared)
    half = jax.tree.map(lambda x: x[2:], ones())
    alone = standard_normal(KEYS[2:], half, Position(None, None))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[2:]), alone, few)


@pytest.mark.parametrize("missing", ["shared", "local"])
def test_momenta_have_the_parts_and_dtype_of_the_position(missing: str) -> None:
    like = ones(dtype="float32")._replace(**{missing: None})
    drawn = standard_normal(KEYS, like, Position(None, None))
    assert jax.tree.structure(drawn) == jax.tree.structure(like)
    assert {x.dtype for x in jax.tree.leaves(drawn)} == {jnp.dtype("float32")}


def test_a_mask_is_applied_to_every_chain() -> None:
    cut = apply_mask(ones(), mask(3, 1))
    np.testing.assert_array_equal(cut.local.sum(axis=(1, 2)), [2.0] * NUM_CHAINS)
    np.testing.assert_array_equal(cut.shared, ones().shared)


def test_chains_whose_gradient_is_not_finite_do_not_count() -> None:
    gradient = ones()
    gradient = Position(gradient.shared.at[1, 0].set(jnp.nan), gradient.local.at[3, 2, 1].set(jnp.inf))
    np.testing.assert_array_equal(count_finite(gradient), [True, False, True, False])
