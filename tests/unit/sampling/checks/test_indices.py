"""An index beyond the end of a latent is refused, wherever in the data and in the program it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.registry import list_components
from bayesmesh.config.settings import Settings
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Model
from bayesmesh.sampling.checks.indices import RowPart, check_indices, find_rows_beyond
from bayesmesh.sampling.program.starts import training_row

tfd = tfp.distributions
LEVELS = 3


def indexed(effects: Any, group: Any) -> Any:
    return effects[group]


def in_a_function(effects: Any, group: Any) -> Any:
    return jax.jit(indexed)(effects, group)


def in_a_loop(effects: Any, group: Any) -> Any:
    return jax.lax.scan(
        lambda total, _: (total + effects[group], None), jnp.zeros_like(effects[group]), None, length=2
    )[0]


def in_a_branch(effects: Any, group: Any) -> Any:
    return jax.lax.cond(effects[0] < 1e9, lambda: effects[group], lambda: jnp.zeros(group.shape, effects.dtype))


@jax.custom_jvp
def own_derivative(effects: Any, group: Any) -> Any:
    return effects[group]


own_derivative.defjvps(lambda tangent, value, effects, group: tangent[group], None)


def of_a_table(effects: Any, group: Any) -> Any:
    return jnp.stack([effects, effects], axis=1)[group, 1]


def of_a_solution(effects: Any, group: Any) -> Any:
    return jnp.linalg.solve(2 * jnp.eye(LEVELS, dtype=effects.dtype) + 0.1, effects)[group]


def of_an_inverse(effects: Any, group: Any) -> Any:
    return (jnp.linalg.inv(2 * jnp.eye(LEVELS, dtype=effects.dtype) + 0.1) @ effects)[group]


def one_by_one(effects: Any, group: Any) -> Any:
    return jax.lax.map(lambda one: effects[one], group)


def through_a_table(effects: Any, group: Any) -> Any:
    return effects[jnp.array([2, 1, 0])[group]]


def by_a_table(effects: Any, group: Any) -> Any:
    return effects[0] * jnp.array([1, 2, 3])[group]


def by_sign(effects: Any, group: Any) -> Any:
    return jnp.where(effects[group] > 0, 1.0, -1.0)


def without_nan(effects: Any, group: Any) -> Any:
    return jnp.nansum(effects[group][:, None], axis=1)


def multiplied(effects: Any, group: Any) -> Any:
    return effects[group] * (group < LEVELS)


def mapped(effects: Any, group: Any) -> Any:
    return jax.vmap(lambda one: effects[one])(group)


def by_a_mode(effects: Any, group: Any) -> Any:
    return effects.at[group].get(mode="clip")


def added(effects: Any, group: Any) -> Any:
    of_row = jax.vmap(lambda one: jnp.zeros(LEVELS, effects.dtype).at[one].add(1))(group)
    return of_row @ effects


def assigned(effects: Any, group: Any) -> Any:
    return jnp.zeros((len(group), LEVELS), effects.dtype).at[jnp.arange(len(group)), group].set(1) @ effects


def summed(effects: Any, group: Any) -> Any:
    ones = jnp.ones(1, effects.dtype)
    return jax.vmap(lambda one: jax.ops.segment_sum(ones, one[None], LEVELS))(group) @ effects


def updated(effects: Any, group: Any) -> Any:
    zeros = jnp.zeros(LEVELS, effects.dtype)
    rows = jax.lax.map(lambda one: jax.lax.dynamic_update_index_in_dim(zeros, effects[0], one, 0), group)
    return rows @ effects


def repeated(effects: Any, group: Any) -> Any:
    last = jnp.repeat(effects, jnp.array([len(group), 0, 0]), total_repeat_length=len(group))
    return last + effects[jnp.minimum(group, LEVELS - 1)]


def padded(effects: Any, group: Any) -> Any:
    of_row = jax.vmap(lambda one: jax.ops.segment_sum(jnp.ones(1, effects.dtype), one[None], LEVELS))
    return of_row(jnp.where(group < LEVELS, group, -1)) @ effects


def counted(effects: Any, group: Any) -> Any:
    return jax.vmap(lambda one: jnp.bincount(one[None], length=LEVELS))(group) @ effects


def clipped(effects: Any, group: Any) -> Any:
    return effects[jnp.minimum(group, LEVELS - 1)]


def multiplied_rate(effects: Any, group: Any) -> Any:
    return jnp.exp(effects[group]) * (group < LEVELS)


def put_aside(effects: Any, group: Any) -> Any:
    return jnp.zeros((len(group), LEVELS + 1), effects.dtype).at[jnp.arange(len(group)), group].set(1)[:, :-1] @ effects


def put_and_masked(effects: Any, group: Any) -> Any:
    return jnp.where(group < LEVELS, assigned(effects, group), 0.0)


def masked(effects: Any, group: Any) -> Any:
    return jnp.where(group < LEVELS, effects[group], 0.0)


def of_constants(effects: Any, group: Any) -> Any:
    return effects[0] * jnp.array([1, 2, 3])[jnp.minimum(group, LEVELS - 1)]


def one_hot(effects: Any, group: Any) -> Any:
    return jax.nn.one_hot(group, LEVELS) @ effects


def model_of(pick: Callable[[Any, Any], Any]) -> type[Model]:
    class Grouped(Model):
        pretty_name = "Grouped"
        offers = ()

        def prior(self, data_spec: Any) -> Any:
            zero = jnp.zeros((), data_spec.dtype)
            return tfd.JointDistributionNamed({"effects": tfd.Sample(tfd.Normal(zero, zero + 1), (LEVELS,))})

        def log_likelihood(self, latents: Any, rows: Any) -> Any:
            mean = pick(latents["effects"], rows["group"])
            return tfd.Normal(mean, jnp.ones((), mean.dtype)).log_prob(rows["y"])

        def predict(self, latents: Any, inputs: Any) -> Any:
            raise NotImplementedError

        def outcome(self, rows: Any) -> Any:
            return rows["y"]

        def summaries(self, latents: Any, rows: Any) -> Any:
            return {}

    return Grouped


def check(pick: Callable[[Any, Any], Any], group: np.ndarray, dtype: str = "float32") -> None:
    rows = {"y": np.full(len(group), 0.25), "group": group.astype(np.int32)}
    spec = DataSpec(len(group), {k: FieldSpec((), v.dtype.name) for k, v in rows.items()}, {}, dtype)
    read = lambda first, end: {k: v[first:end] for k, v in rows.items()}  # noqa: E731
    check_indices(model_of(pick), Settings(), spec, RowPart(training_row, 0, len(group), read), list)


TAKES = [
    indexed, in_a_function, in_a_loop, in_a_branch, own_derivative, of_a_table, of_a_solution, of_an_inverse, one_by_one,
    through_a_table, by_a_table, by_sign, without_nan, mapped, by_a_mode, added, assigned, summed, updated,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("pick", TAKES)
def test_groups_counted_from_1_are_refused(pick: Any, dtype: str) -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)log_likelihood: training row 5 \(group 3\): an index is beyond the end.*group - 1"
    ):
        check(pick, np.array([1, 2, 1, 2, 3, 3]), dtype)
    check(pick, np.array([0, 2, 1, 2, 0, 1]), dtype)


def test_negative_indices_count_from_the_end() -> None:
    check(indexed, np.array([-1, -3, 0]))
    with pytest.raises(ConfigError, match=r"training row 2 \(group -4\)"):
        check(indexed, np.array([0, -4]))


@pytest.mark.parametrize(
    "pick",
    [
        clipped,
        masked,
        multiplied,
        multiplied_rate,
        of_constants,
        one_hot,
        put_aside,
        put_and_masked,
        repeated,
        padded,
        counted,
    ],
)
def test_what_is_masked_or_meant_is_accepted(pick: Any) -> None:
    check(pick, np.array([0, 2, 3, 9]))


@pytest.mark.parametrize("name", list_components("model"))
def test_a_model_of_the_registry_is_accepted(make_case: Any, name: str) -> None:
    case = make_case(name, "float32")
    read = lambda first, end: {k: v[first:end] for k, v in case.rows.items()}  # noqa: E731
    check_indices(case.model_class, case.options, case.spec, RowPart(training_row, 0, case.spec.num_rows, read), list)


def test_one_row_among_many_is_found_where_all_are_one_number() -> None:
    """Of a model that takes all data as one row, whose sum is that of 20,000 outcomes of some hundreds."""
    rng = np.random.default_rng(0)
    y, group = 500 + 100 * rng.standard_normal(20_000).astype(np.float32), rng.integers(0, 100, 20_000)

    def total(effects: Any, group: Any) -> Any:
        return tfd.Normal(effects[group], 200.0).log_prob(y).sum(keepdims=True)

    effects = jnp.full(100, 500, jnp.float32) + jnp.arange(100)
    find = find_rows_beyond(total, effects, jnp.asarray(group))
    assert find is not None
    assert find(effects, jnp.asarray(group)) is None
    group[12_345] = 100
    assert find(effects, jnp.asarray(group)) == 0
