"""The contract of a kernel, for every kernel of the registry, on a small normal target."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import component_path, list_components, load_component, read_options
from bayesmesh.kernels.base import Density, Kernel, Position

NUM_CHAINS, NUM_WARMUP, MOST = 6, 60, 60
SHAPES = {"rows": (4, 2), "shared": (3,), "single": ()}
PADDED = 1
"""Entries at the end of `rows` that are padding."""


@pytest.fixture(scope="module", params=list_components("kernel"))
def kernel(request) -> Kernel:
    return make(request.param)


def make(name: str, num_warmup: int = NUM_WARMUP, **options: Any) -> Kernel:
    return load_component("kernel", name)(read_options(component_path("kernel", name))(**options), num_warmup)


def active(dtype: str = "float64") -> Position:
    ones = {k: jnp.ones(s, dtype) for k, s in SHAPES.items()}
    return ones | {"rows": ones["rows"].at[-PADDED:].set(0)}


def initial_position(dtype: str = "float64", num_chains: int = NUM_CHAINS) -> Position:
    keys = jax.random.split(jax.random.key(5), len(SHAPES))
    noise = {
        k: jax.random.normal(key, (num_chains, *s), dtype) for key, (k, s) in zip(keys, SHAPES.items(), strict=True)
    }
    return {k: v * active(dtype)[k] for k, v in noise.items()}


def log_density(position: Position, height: jax.Array | float = 0.0) -> Density:
    """Independent normals with precision 1 + number of the entry; half of it called prior. Padding has no part in it.

    Where |shared| > 1.5 the log likelihood is `height` less; a height that is not finite ends the world there.
    """

    def of_chain(q: Position) -> jax.Array:
        live = {k: q[k] * one for k, one in active(q["rows"].dtype).items()}
        flat = jnp.concatenate([live[k].ravel() for k in sorted(live)])
        return -0.5 * jnp.sum((1 + jnp.arange(flat.size, dtype=flat.dtype)) * flat**2, dtype=jnp.float64)

    value, gradient = jax.vmap(jax.value_and_grad(of_chain))(position)
    outside = jnp.abs(position["shared"]).max(axis=1) > 1.5
    return Density(0.25 * value, 0.75 * value - jnp.where(outside, height, 0.0), gradient)


def key_at(iteration: jax.Array | int, num_chains: int = NUM_CHAINS) -> jax.Array:
    """Typed keys of the chains, by absolute index."""
    chains = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(8), c))(jnp.arange(num_chains))
    return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(chains)


def loop(step: Callable[[jax.Array, Any], tuple[Any, Any]], state: Any, first: Any, count: Any) -> tuple[Any, Any]:
    """Make `count` steps; a state that changes its structure, a shape or a dtype is refused by JAX."""

    def one(i: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        state, info = step(key_at(first + i), carry[0])
        return state, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), carry[1], info)

    shapes = jax.eval_shape(step, key_at(0), state)[1]
    infos = jax.tree.map(lambda x: jnp.zeros((MOST, *x.shape), x.dtype), shapes)
    return jax.lax.fori_loop(0, count, one, (state, infos))


class Runs:
    """The compiled loops of a kernel; one program for any number of steps, as in `sampling.program`."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._init = jax.jit(lambda q, h: kernel.init(q, self._density(h)))
        self._warmup_init = jax.jit(lambda s: kernel.warmup_init(s, active()))
        self._warmup = jax.jit(lambda s, i, n, h: loop(functools.partial(self._warmup_step, h), s, i, n))
        self._sample = jax.jit(lambda c, i, n, h: loop(functools.partial(self._step, h), c, i, n))

    def _density(self, height: Any) -> Callable[[Position], Density]:
        return functools.partial(log_density, height=height)

    def _warmup_step(self, height: Any, key: jax.Array, state: Any) -> tuple[Any, Any]:
        return self.kernel.warmup_step(key, state, self._density(height))

    def _step(self, height: Any, key: jax.Array, carry: Any) -> tuple[Any, Any]:
        state, info = self.kernel.step(key, carry[0], self._density(height), carry[1])
        return (state, carry[1]), (info, state.position)

    def init(self, position: Position, height: float = 0.0) -> Any:
        return self._init(position, height)

    def start(self, position: Position | None = None, height: float = 0.0) -> Any:
        return self._warmup_init(self.init(initial_position() if position is None else position, height))

    def warmup(self, state: Any, first: int, count: int, height: float = 0.0) -> tuple[Any, Any]:
        state, info = self._warmup(state, first, count, height)
        return state, jax.tree.map(lambda x: x[:count], info)

    def sample(self, carry: Any, first: int, count: int, height: float = 0.0) -> tuple[Any, Any, Position]:
        """Return state, info (draw, ...) and positions (draw, chain, ...)."""
        (state, _), out = self._sample(carry, first, count, height)
        return state, *jax.tree.map(lambda x: x[:count], out)


@pytest.fixture(scope="module")
def runs(kernel) -> Runs:
    return Runs(kernel)


@pytest.fixture(scope="module")
def warm(runs) -> tuple[Any, Any]:
    """State and tuning after warmup."""
    return runs.kernel.warmup_finish(runs.warmup(runs.start(), 0, NUM_WARMUP)[0])


def through_host(state: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x).copy()), state)


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), one, other)


def abstract(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_leaves_shapes_and_dtypes_as_they_are(kernel, dtype) -> None:
    def start(position: Position) -> Any:
        return kernel.warmup_init(kernel.init(position, log_density), active(dtype))

    before = jax.eval_shape(start, initial_position(dtype))
    after, _ = jax.eval_shape(lambda s: kernel.warmup_step(key_at(0), s, log_density), before)
    assert abstract(after) == abstract(before)
    carry = jax.eval_shape(kernel.warmup_finish, before)
    later, _ = jax.eval_shape(lambda c: kernel.step(key_at(0), c[0], log_density, c[1]), carry)
    assert abstract(later) == abstract(carry[0])
    assert carry[0].position.keys() == SHAPES.keys()
    assert all(v.dtype == dtype for v in carry[0].position.values())


def test_a_state_is_its_own_checkpoint(runs, warm) -> None:
    """Cut anywhere and taken through NumPy, warmup and sampling are bit for bit what they are in one piece."""
    whole, info = runs.warmup(runs.start(), 0, NUM_WARMUP)
    for cut in (1, 13):
        first, info_first = runs.warmup(runs.start(), 0, cut)
        second, info_second = runs.warmup(through_host(first), cut, NUM_WARMUP - cut)
        assert_same(second, whole)
        assert_same(jax.tree.map(lambda *x: jnp.concatenate(x), info_first, info_second), info)

    whole, info, draws = runs.sample(warm, 100, 12)
    first, _, _ = runs.sample(warm, 100, 5)
    second, info_second, draws_second = runs.sample((through_host(first), through_host(warm[1])), 105, 7)
    assert_same(second, whole)
    assert_same((info_second, draws_second), jax.tree.map(lambda x: x[5:], (info, draws)))


def test_the_same_keys_give_the_same_draws_and_others_do_not(runs, warm) -> None:
    one, again, other = (runs.sample(warm, first, 5)[2] for first in (0, 0, 5))
    assert_same(one, again)
    assert (one["shared"] != other["shared"]).any(axis=(0, 2)).all()


def test_chains_are_strangers_once_warmup_is_over(kernel, warm) -> None:
    """A chain's transition is decided by its own key and state: reordering chains reorders draws."""
    order = np.random.default_rng(0).permutation(NUM_CHAINS)

    def reorder(tree: Any) -> Any:
        return jax.tree.map(lambda x: x[order] if x.ndim and x.shape[0] == NUM_CHAINS else x, tree)

    step = jax.jit(lambda key, state: kernel.step(key, state, log_density, warm[1]))
    state, info = step(key_at(3), warm[0])
    assert_same(step(key_at(3)[order], reorder(warm[0])), (reorder(state), reorder(info)))
    assert len(np.unique(np.asarray(state.position["single"]))) == NUM_CHAINS


def variants(name: str) -> list[dict[str, Any]]:
    """Options that adapt differently: each choice of each option with choices, and half of warmup where that is one."""
    fields = read_options(component_path("kernel", name)).model_fields
    choices = [
        {k: value} for k, f in fields.items() if get_origin(f.annotation) is Literal for value in get_args(f.annotation)
    ]
    early = {"adaptation_fraction": 0.5} if "adaptation_fraction" in fields else {}
    return [{**choice, **early} for choice in choices or [{}]]


@pytest.mark.parametrize(
    ("name", "options"), [pytest.param(n, o, id=f"{n} {o}") for n in list_components("kernel") for o in variants(n)]
)
def test_tuning_stays_once_the_adapted_part_of_warmup_is_over(name: str, options: dict[str, Any]) -> None:
    runs = Runs(make(name, **options))
    num_adaptive = runs.kernel.num_adaptive
    assert 0 < num_adaptive <= NUM_WARMUP
    state, tuning, used = runs.start(), [], []
    for start in range(0, NUM_WARMUP, 5):
        state, info = runs.warmup(state, start, 5)
        tuning.append(runs.kernel.warmup_finish(state)[1])
        used.extend(np.asarray(info.step_size))
    settled = [t for i, t in enumerate(tuning) if 5 * (i + 1) >= num_adaptive]
    for later in settled[1:]:
        assert_same(later, settled[0])
    with pytest.raises(AssertionError):
        assert_same(tuning[0], settled[0])
    _, info, _ = runs.sample(runs.kernel.warmup_finish(state), NUM_WARMUP, 20)
    for steps in (used[num_adaptive:], np.asarray(info.step_size)):
        np.testing.assert_array_equal(steps, np.full(len(steps), info.step_size[0]))


def test_padding_never_moves(runs, warm) -> None:
    _, _, draws = runs.sample(warm, 50, 10)
    for position in (warm[0].position, jax.tree.map(lambda x: x[-1], draws)):
        assert not position["rows"][:, -PADDED:].any()
        assert all((position[k] != initial_position()[k]).any() for k in SHAPES)


def test_padding_behind_the_rows_changes_no_draw(kernel) -> None:
    """What lies behind the rows depends on the number of devices; the draws must not."""
    num_rows = SHAPES["rows"][0]

    def transitions(num_padding: int) -> Position:
        def pad(x: jax.Array, axis: int) -> jax.Array:
            return jnp.pad(x, [(0, num_padding if i == axis else 0) for i in range(x.ndim)])

        def padded_density(position: Position) -> Density:
            found = log_density(position | {"rows": position["rows"][:, :num_rows]})
            return found._replace(gradient=found.gradient | {"rows": pad(found.gradient["rows"], 1)})

        position, ones = initial_position(), active()
        position["rows"], ones["rows"] = pad(position["rows"], 1), pad(ones["rows"], 0)
        state, tuning = kernel.warmup_finish(kernel.warmup_init(kernel.init(position, padded_density), ones))
        state, _ = kernel.step(key_at(0), state, padded_density, tuning)
        return state.position | {"rows": state.position["rows"][:, :num_rows]}

    none, some = (jax.jit(functools.partial(transitions, n))() for n in (0, 3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), none, some)
    assert (none["rows"][:, :-PADDED] != initial_position()["rows"][:, :-PADDED]).any()


def test_info_has_what_diagnostics_need(runs, warm) -> None:
    state, info, _ = runs.sample(warm, 0, 4)
    for name in ("acceptance_rate", "accepted", "diverging", "energy", "lp", "log_likelihood"):
        assert getattr(info, name).shape == (4, NUM_CHAINS), name
    for name in ("n_steps", "step_size"):
        assert getattr(info, name).shape == (4,), name
    assert info.diverging.dtype == bool
    assert jnp.issubdtype(info.n_steps.dtype, jnp.integer)
    assert {info.energy.dtype, info.lp.dtype} == {jnp.dtype("float64")}
    assert (info.n_steps >= 1).all()
    assert (info.step_size > 0).all()
    assert ((info.acceptance_rate >= 0) & (info.acceptance_rate <= 1)).all()
    assert (info.energy >= -info.lp).all(), "energy is potential plus kinetic"
    density = log_density(state.position)
    np.testing.assert_allclose(info.lp[-1], density.log_prior + density.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(info.log_likelihood[-1], density.log_likelihood, rtol=1e-12)


def test_the_state_carries_the_density_at_its_position(runs, warm) -> None:
    # Longer steps than warmup found: a kernel that draws from its whole trajectory seldom stays where it is.
    tuning = warm[1]._replace(step_size=1.5 * warm[1].step_size)
    state, info, _ = runs.sample((warm[0], tuning), 0, 25)
    assert not info.accepted[-3:].all(), "this test wants a rejection among its last steps"
    fresh = runs.init(state.position)
    for name in ("log_prior", "log_likelihood", "gradient"):
        near = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-13)
        jax.tree.map(near, getattr(state, name), getattr(fresh, name))


def test_gradients_are_counted_as_they_are_taken(kernel, warm) -> None:
    calls = []

    def counted(position: Position) -> Density:
        jax.debug.callback(lambda: calls.append(1))
        return log_density(position)

    _, info = jax.jit(lambda c: kernel.step(key_at(0), c[0], counted, c[1]))(warm)
    jax.effects_barrier()
    assert len(calls) == int(info.n_steps)


@pytest.mark.parametrize("height", [1e9, np.nan, np.inf, -np.inf])
def test_a_rejected_state_is_counted_again(runs, warm, height) -> None:
    """Islands of 1.5 with chains in steps that overshoot them: every stored draw is the start."""
    origin = jax.tree.map(jnp.zeros_like, initial_position())
    begin = runs.init(origin, height)
    tuning = warm[1]._replace(step_size=jnp.asarray(1e3))
    state, info, draws = runs.sample((begin, tuning), 0, 8, height)
    for name, drawn in draws.items():
        assert drawn.shape == (8, NUM_CHAINS, *SHAPES[name])
        assert not drawn.any()
    assert_same(state._replace(num_steps=begin.num_steps), begin)
    assert not info.acceptance_rate.any()
    assert info.diverging.all()
    assert jnp.isfinite(info.energy).all()
    assert not info.lp.any()


def test_warmup_outlives_densities_that_are_not_finite(runs) -> None:
    """Outside of a box there is nothing; warmup ends with finite tuning and with chains that move."""
    position = initial_position()
    position["shared"] = 0.1 * position["shared"]
    state, _ = runs.warmup(runs.start(position, np.nan), 0, NUM_WARMUP, np.nan)
    carry = runs.kernel.warmup_finish(state)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(carry))
    _, info, draws = runs.sample(carry, 100, 20, np.nan)
    assert info.accepted.mean() > 0.2
    assert jnp.abs(draws["shared"]).max() <= 1.5


def test_a_chain_lost_from_the_start_spoils_no_other(runs) -> None:
    """One chain of six starts where nothing is finite: it stays and is reported, and the others are tuned as ever."""
    position = initial_position()
    position["shared"] = (0.1 * position["shared"]).at[0].set(jnp.inf)
    state, _ = runs.warmup(runs.start(position, np.nan), 0, NUM_WARMUP, np.nan)
    state, tuning = runs.kernel.warmup_finish(state)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(tuning))
    _, info, _ = runs.sample((state, tuning), 100, 20, np.nan)
    assert info.diverging[:, 0].all()
    assert 0.2 < info.acceptance_rate[:, 1:].mean() < 0.99


def test_no_warmup_is_a_warmup(kernel) -> None:
    none = type(kernel)(kernel.options, 0)

    def one(position: Position) -> Any:
        state = none.warmup_init(none.init(position, log_density), active())
        state, _ = none.warmup_step(key_at(0), state, log_density)
        state, tuning = none.warmup_finish(state)
        return none.step(key_at(1), state, log_density, tuning)

    assert jnp.isfinite(jax.jit(one)(initial_position())[1].energy).all()


def test_the_kernel_says_what_it_is_and_what_it_costs(kernel) -> None:
    assert kernel.pretty_name
    assert kernel.reference
    assert kernel.expected_gradients() >= 1
    assert kernel.min_chains >= 1
