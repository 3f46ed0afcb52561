"""The contract of a kernel, for every kernel of the registry, on a small normal target."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import component_path, list_components, load_component, read_options
from bayesmesh.kernels.base import Axes, Density, DensityParts, Kernel, Position, first_chains

NUM_CHAINS, NUM_WARMUP, MOST = 6, 60, 60
NUM_SHARED, NUM_ENTRIES, WIDTH = 4, 4, 2
PADDED = 1
"""Entries at the end of the local part that are padding."""

SHORT = {"nuts": {"max_tree_depth": 5}}
"""Options that are compiled in and keep transitions short."""


class Box:
    """Independent normals with precision 1 + number of the coordinate; a quarter of it called prior.

    Padding has no part in it. Where a shared coordinate but the last is beyond 1.5 the log likelihood is `height` less;
    a height that is not finite ends the world there.

    Args:
        height: nats.
        behind: further entries of padding.
    """

    def __init__(self, height: jax.Array | float = 0.0, behind: int = 0, dtype: str = "float64") -> None:
        self.height, self.num_entries, self.dtype = height, NUM_ENTRIES + behind, dtype

    @property
    def mask(self) -> Position:
        is_entry = jnp.arange(self.num_entries) < NUM_ENTRIES - PADDED
        return Position(None, is_entry.astype(self.dtype)[:, None])

    def log_density_parts(self, position: Position) -> DensityParts:
        def of_chain(q: Position) -> jax.Array:
            flat = jnp.concatenate([q.shared, q.local[: NUM_ENTRIES - PADDED].ravel()])
            return -0.5 * jnp.sum((1 + jnp.arange(flat.size, dtype=flat.dtype)) * flat**2, dtype=jnp.float64)

        value, gradient = jax.vmap(jax.value_and_grad(of_chain))(position)
        outside = jnp.abs(position.shared[:, :-1]).max(axis=1) > 1.5
        log_likelihood = 0.75 * value - jnp.where(outside, self.height, 0.0)
        of_prior, of_likelihood = (jax.tree.map(lambda g, c=c: c * g, gradient) for c in (0.25, 0.75))
        return DensityParts(0.25 * value, log_likelihood, of_prior, of_likelihood)

    def log_density(self, position: Position) -> Density:
        log_prior, log_likelihood, *gradients = self.log_density_parts(position)
        return Density(log_prior, log_likelihood, jax.tree.map(jnp.add, *gradients))


class Arguments(NamedTuple):
    """What a compiled loop is called with: numeric options, () int32 warmup iterations, the target's height, a seed."""

    options: dict[str, Any]
    num_warmup: Any = NUM_WARMUP
    height: Any = 0.0
    seed: Any = 8


class Chains(NamedTuple):
    """State and adaptation; with nothing else it is the checkpoint."""

    state: Any
    adaptation: Any


def make(name: str, num_warmup: int = NUM_WARMUP, **options: Any) -> Kernel:
    options = SHORT.get(name, {}) | options
    return load_component("kernel", name)(read_options(component_path("kernel", name))(**options), num_warmup)


def initial_position(num_chains: int = NUM_CHAINS, behind: int = 0, dtype: str = "float64", seed: int = 5) -> Position:
    key_shared, key_local = jax.random.split(jax.random.key(seed))
    shared = jax.random.normal(key_shared, (num_chains, NUM_SHARED), dtype)
    local = jax.random.normal(key_local, (num_chains, NUM_ENTRIES, WIDTH), dtype).at[:, -PADDED:].set(0)
    return Position(shared, jnp.pad(local, ((0, 0), (0, behind), (0, 0))))


def near_mode(lost: int | None = None) -> Position:
    """Chains within the box, but for one that is nowhere."""
    start = initial_position()
    shared = 0.1 * start.shared
    return start._replace(shared=shared if lost is None else shared.at[lost].set(jnp.inf))


def key_at(iteration: Any, num_chains: int = NUM_CHAINS, seed: Any = 8) -> jax.Array:
    """Typed keys of the chains, by absolute index."""
    chains = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(seed), c))(jnp.arange(num_chains))
    return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(chains)


def begin(kernel: Kernel, target: Box, position: Position, seed: Any = 8) -> Chains:
    num_chains = position.shared.shape[0]
    state = kernel.init(key_at(2**31, num_chains, seed), position, target)
    return Chains(state, kernel.init_adaptation(state, target))


def advance(kernel: Kernel, target: Box, chains: Chains, index: Any, seed: Any = 8) -> tuple[Chains, Any]:
    """Make iteration `index`, and learn from it where it is adaptive, as `sampling.program` does."""
    is_adapting = jnp.asarray(index, jnp.int32) < kernel.num_adaptive
    num_chains = chains.state.log_prior.shape[0]
    tuning = kernel.tuning(chains.adaptation, is_adapting)
    state, info = kernel.step(key_at(index, num_chains, seed), chains.state, target, tuning)
    adaptation = jax.lax.cond(
        is_adapting,
        lambda: kernel.adapt(chains.adaptation, chains.state, state, info, target),
        lambda: chains.adaptation,
    )
    return Chains(state, adaptation), info


def loop(kernel: Kernel, target: Box, chains: Chains, first: Any, count: Any, seed: Any = 8) -> tuple[Chains, Any]:
    """Make `count` iterations; a state that changes its structure, a shape or a dtype is refused by JAX."""

    def made(chains: Chains, index: Any) -> tuple[Chains, Any]:
        chains, info = advance(kernel, target, chains, index, seed)
        num_reported = kernel.num_chains_reported(len(chains.state.log_prior))
        statistics = {k: getattr(info, k) for k in kernel.statistics}
        return chains, (statistics, first_chains(chains.state.position, num_reported))

    step = jax.jit(made, inline=True)

    def one(i: jax.Array, carry: tuple[Chains, Any]) -> tuple[Chains, Any]:
        chains, out = step(carry[0], first + i)
        return chains, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), carry[1], out)

    shapes = jax.eval_shape(step, chains, first)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((MOST, *x.shape), x.dtype), shapes)
    return jax.lax.fori_loop(0, count, one, (chains, empty))


class Runs:
    """The two programs of a kernel, whose numbers are arguments: they are compiled once for all tests."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._begin = jax.jit(self.trace_begin)
        self._loop = jax.jit(self.trace_loop)

    def trace_begin(self, arguments: Arguments, position: Position) -> Chains:
        return begin(self._kernel(arguments), Box(arguments.height), position, arguments.seed)

    def trace_loop(self, arguments: Arguments, chains: Chains, first: Any, count: Any) -> tuple[Chains, Any]:
        return loop(self._kernel(arguments), Box(arguments.height), chains, first, count, arguments.seed)

    def _kernel(self, arguments: Arguments) -> Kernel:
        return self.kernel.with_arguments(arguments.options, arguments.num_warmup)

    def arguments(self, **changed: Any) -> Arguments:
        """Arguments, all of them arrays; `changed` are fields of `Arguments` or options of the kernel."""
        fields = {k: changed.pop(k) for k in list(changed) if k in Arguments._fields}
        assert changed.keys() <= self.kernel.numeric_options.keys()
        options = {k: jnp.asarray(v) for k, v in (self.kernel.numeric_options | changed).items()}
        given = Arguments(options, **fields)
        return Arguments(
            options,
            jnp.asarray(given.num_warmup, jnp.int32),
            jnp.asarray(given.height, jnp.float64),
            jnp.asarray(given.seed, jnp.uint32),
        )

    def begin(self, position: Position | None = None, **changed: Any) -> Chains:
        return self._begin(self.arguments(**changed), initial_position() if position is None else position)

    def go(self, chains: Chains, first: int, count: int, **changed: Any) -> tuple[Chains, dict[str, Any], Position]:
        """Return chains, statistics (iteration, ...) and positions (iteration, reported chain, ...)."""
        chains, out = self._loop(self.arguments(**changed), chains, jnp.asarray(first), jnp.asarray(count))
        return chains, *jax.tree.map(lambda x: x[:count], out)

    def warm_up(self, position: Position | None = None, **changed: Any) -> Chains:
        return self.go(self.begin(position, **changed), 0, NUM_WARMUP, **changed)[0]

    def tuning(self, chains: Chains) -> Any:
        return self.kernel.tuning(chains.adaptation, False)


@functools.cache
def runs_of(name: str, metric: str | None = None) -> Runs:
    """The programs of a kernel by its options that are compiled in."""
    return Runs(make(name, **({} if metric is None else {"metric": metric})))


def with_trait(trait: str, value: bool) -> list[str]:
    """Return the kernels of which a trait is so."""
    return [name for name in list_components("kernel") if getattr(load_component("kernel", name), trait) is value]


@pytest.fixture(scope="module", params=list_components("kernel"))
def runs(request) -> Runs:
    return runs_of(request.param)


@pytest.fixture(scope="module")
def kernel(runs) -> Kernel:
    return runs.kernel


@pytest.fixture(scope="module")
def warm(runs) -> Chains:
    return runs.warm_up()


@pytest.fixture(scope="module")
def num_reported(kernel) -> int:
    return kernel.num_chains_reported(NUM_CHAINS)


def through_host(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(np.asarray(x).copy()), tree)


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), one, other)


def assert_close(one: Any, other: Any, tolerance: float = 1e-12) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


def abstract(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


# -- states and adaptations ----------------------------------------------------------------------------------------


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


def test_a_state_is_its_own_checkpoint(runs, warm) -> None:
    """Cut anywhere and taken through NumPy, warmup and sampling are bit for bit what they are in one piece."""
    whole, *out = runs.go(runs.begin(), 0, NUM_WARMUP)
    for cut in (1, 13):
        first, *out_first = runs.go(runs.begin(), 0, cut)
        second, *out_second = runs.go(through_host(first), cut, NUM_WARMUP - cut)
        assert_same(second, whole)
        assert_same(jax.tree.map(lambda *x: jnp.concatenate(x), out_first, out_second), out)

    whole, *out = runs.go(warm, 100, 12)
    first, *_ = runs.go(warm, 100, 5)
    second, *out_second = runs.go(through_host(first), 105, 7)
    assert_same(second, whole)
    assert_same(out_second, jax.tree.map(lambda x: x[5:], out))


def test_the_state_carries_the_density_at_its_position(runs) -> None:
    # A low target makes rejections frequent: a kernel that draws from its whole trajectory seldom stays where it is.
    bold = {"target_acceptance": 0.3} if "target_acceptance" in runs.kernel.numeric_options else {}
    chains, statistics, _ = runs.go(runs.warm_up(**bold), NUM_WARMUP, 40, **bold)
    if "accepted" in statistics:
        assert not statistics["accepted"][-3:].all(), "this test wants a rejection among its last steps"
    fresh = runs.begin(chains.state.position).state
    names = [n for n in ("log_prior", "log_likelihood", "gradient") if hasattr(fresh, n)]
    for name in names:
        assert_close(getattr(chains.state, name), getattr(fresh, name))


# -- keys, chains and chain sets -------------------------------------------------------------------------------------


def test_the_same_keys_give_the_same_draws_and_others_do_not(runs, warm) -> None:
    one, again, other = (runs.go(warm, first, 20)[2] for first in (100, 100, 120))
    assert_same(one, again)
    assert (one.shared != other.shared).any(axis=(0, 2)).all()


@pytest.mark.parametrize("runs", with_trait("interacts", False), indirect=True)
def test_chains_are_strangers_once_warmup_is_over(runs, kernel, warm) -> None:
    """A chain's transition is decided by its own key and state: reordering chains reorders draws."""
    order = np.random.default_rng(0).permutation(NUM_CHAINS)

    def reorder(tree: Any) -> Any:
        return jax.tree.map(lambda x: x[order] if x.ndim and x.shape[0] == NUM_CHAINS else x, tree)

    step = jax.jit(lambda key, state: kernel.step(key, state, Box(), runs.tuning(warm)))
    state, info = step(key_at(3), warm.state)
    assert_same(step(key_at(3)[order], reorder(warm.state)), (reorder(state), reorder(info)))


def test_every_chain_goes_its_own_way(warm) -> None:
    assert len(np.unique(np.asarray(warm.state.position.shared[:, -1]))) == NUM_CHAINS


def test_chain_sets_do_not_meet(runs) -> None:
    """Mapped over two chain sets, a whole warmup gives each what it gives it alone: pooling stays within a set."""

    @jax.jit
    def both(arguments: Arguments, seeds: jax.Array, positions: Position, count: Any) -> tuple[Chains, Any]:
        def one(seed: jax.Array, position: Position) -> tuple[Chains, Any]:
            mine = arguments._replace(seed=seed)
            return runs.trace_loop(mine, runs.trace_begin(mine, position), jnp.asarray(0), count)

        return jax.vmap(one)(seeds, positions)

    def go(num_warmup: int, *seeds: int) -> Any:
        starts = jax.tree.map(lambda *x: jnp.stack(x), *(initial_position(seed=s) for s in seeds))
        arguments = runs.arguments(num_warmup=num_warmup)
        return both(arguments, jnp.asarray(seeds, jnp.uint32), starts, jnp.asarray(num_warmup + 2))

    # Few iterations: another order of the same sums is a rounding error, which grows from step to step.
    num_warmup, seeds = 8, (8, 9)
    chains, (_, draws) = go(num_warmup, *seeds)
    for i, seed in enumerate(seeds):
        changed = {"seed": seed, "num_warmup": num_warmup}
        start = runs.begin(initial_position(seed=seed), **changed)
        alone, _, drawn = runs.go(start, 0, num_warmup + 2, **changed)
        assert_close(jax.tree.map(lambda x, i=i: x[i], chains), alone, 1e-8)
        assert_close(jax.tree.map(lambda x, i=i: x[i, : num_warmup + 2], draws), drawn, 1e-8)
    assert (draws.shared[0] != draws.shared[1]).any()
    # Of the other set nothing is seen, to the bit.
    first, other = (jax.tree.map(lambda x: x[0], go(25, 8, s)) for s in (9, 10))
    assert_same(first, other)


# -- options and warmup ----------------------------------------------------------------------------------------------


def metrics_of(name: str) -> list[str | None]:
    """The kernel's own metric, and the others it has a choice of; they adapt differently."""
    schema = read_options(component_path("kernel", name)).model_json_schema()["properties"].get("metric", {})
    return [None, *(m for m in schema.get("enum", []) if m != schema["default"])]


@pytest.mark.parametrize(
    ("name", "metric"), [pytest.param(n, m, id=f"{n} {m}") for n in list_components("kernel") for m in metrics_of(n)]
)
def test_tuning_stays_once_the_adapted_part_of_warmup_is_over(name: str, metric: str | None) -> None:
    runs = runs_of(name, metric)
    early = {"adaptation_fraction": 0.5} if "adaptation_fraction" in runs.kernel.numeric_options else {}
    num_adaptive = make(name, **early).num_adaptive
    assert 0 < num_adaptive <= NUM_WARMUP
    chains, tuning, used = runs.begin(**early), [], []
    for start in range(0, NUM_WARMUP, 5):
        chains, statistics, _ = runs.go(chains, start, 5, **early)
        tuning.append(runs.tuning(chains))
        used.extend(np.asarray(statistics.get("step_size", np.ones(5))))
    settled = [t for i, t in enumerate(tuning) if 5 * (i + 1) >= num_adaptive]
    after, statistics, _ = runs.go(chains, NUM_WARMUP, 20, **early)
    for later in (*settled[1:], runs.tuning(after)):
        assert_same(later, settled[0])
    if jax.tree.leaves(settled[0]):
        with pytest.raises(AssertionError):
            assert_same(tuning[0], settled[0])
    assert_same(after.adaptation, chains.adaptation)
    later_steps = np.asarray(statistics.get("step_size", np.ones(20)))
    for steps in (used[num_adaptive:], later_steps):
        np.testing.assert_array_equal(steps, np.full(len(steps), later_steps[0]))


def test_numeric_options_as_arguments_are_those_that_are_compiled_in(runs) -> None:
    """Values that are known only when the program runs give the draws that they give as constants."""
    name, num_warmup = runs.kernel.__class__.__module__.rpartition(".")[2], 12
    changed = {k: 0.75 * v for k, v in runs.kernel.numeric_options.items() if isinstance(v, float)}
    assert changed, "a kernel without numbers to set needs another test"
    constant = make(name, num_warmup, **changed)
    target = Box()

    @jax.jit
    def compiled_in(position: Position) -> Any:
        return loop(constant, target, begin(constant, target, position), 0, num_warmup + 8)

    chains, out = compiled_in(initial_position())
    arguments = {"num_warmup": num_warmup, **changed}
    as_arguments, *out_arguments = runs.go(runs.begin(**arguments), 0, num_warmup + 8, **arguments)
    assert_close(as_arguments, chains, 1e-9)
    assert_close(out_arguments, jax.tree.map(lambda x: x[: num_warmup + 8], list(out)), 1e-9)
    other = runs.go(runs.begin(), 0, num_warmup + 8)[2]
    assert (other.shared != out_arguments[1].shared).any(), "the options have an effect"


def test_no_warmup_is_a_warmup(runs) -> None:
    chains, statistics, draws = runs.go(runs.begin(num_warmup=0), 0, 5, num_warmup=0)
    assert_same(chains.adaptation, runs.begin(num_warmup=0).adaptation)
    assert all(jnp.isfinite(x).all() for x in (*statistics.values(), *draws))
    assert make(runs.kernel.__class__.__module__.rpartition(".")[2], 0).num_adaptive == 0


def least_acceptance(kernel: Kernel) -> float:
    """What is taken at least where warmup has found a step size: 0.2, or half of a target that is low."""
    return min(0.2, 0.5 * float(kernel.numeric_options.get("target_acceptance", 1.0)))


@pytest.mark.parametrize("runs", with_trait("is_adjusted", True), indirect=True)
def test_warmup_outlives_densities_that_are_not_finite(runs) -> None:
    """Outside of a box there is nothing; warmup ends with finite tuning and with chains that move."""
    chains = runs.warm_up(near_mode(), height=np.nan)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((chains, runs.tuning(chains))))
    _, statistics, draws = runs.go(chains, 100, 20, height=np.nan)
    assert (jnp.diff(draws.shared, axis=0) != 0).any(axis=2).mean() > least_acceptance(runs.kernel)
    assert jnp.abs(draws.shared[..., :-1]).max() <= 1.5
    assert jnp.isfinite(statistics["lp"]).all()


@pytest.mark.parametrize("runs", with_trait("is_adjusted", True), indirect=True)
@pytest.mark.parametrize("lost", [0, NUM_CHAINS - 1])
def test_a_chain_lost_from_the_start_spoils_no_other(runs, num_reported, lost) -> None:
    """One chain of six starts where nothing is finite: it stays and is reported, and the others are tuned as ever."""
    chains = runs.warm_up(near_mode(lost), height=np.nan)
    tuning = runs.tuning(chains)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(tuning))
    after, statistics, draws = runs.go(chains, 100, 20, height=np.nan)
    assert not jnp.isfinite(after.state.position.shared[lost]).any()
    others = np.arange(num_reported) != lost
    assert jnp.isfinite(statistics["lp"][:, others]).all()
    moves = np.asarray((jnp.diff(draws.shared[:, others], axis=0) != 0).any(axis=2))
    assert least_acceptance(runs.kernel) < moves.mean()
    assert moves.any(axis=0).all()
    if lost < num_reported:
        assert not jnp.isfinite(statistics["lp"][:, lost]).any()
        assert statistics.get("diverging", np.ones((20, num_reported)))[:, lost].all()
        assert not statistics.get("accepted", np.zeros((20, num_reported)))[:, lost].any()
    if "acceptance_rate" in statistics:
        assert least_acceptance(runs.kernel) < statistics["acceptance_rate"][:, others].mean() < 0.99


# -- padding ---------------------------------------------------------------------------------------------------------


def test_padding_never_moves(runs, warm) -> None:
    _, _, draws = runs.go(warm, 100, 10)
    for position in (warm.state.position, draws):
        assert not position.local[..., -PADDED:, :].any()
    start = initial_position()
    for now, then in zip(warm.state.position, start, strict=True):
        assert (now != then).reshape(NUM_CHAINS, -1).any(axis=1).all()


def test_padding_behind_the_entries_changes_no_draw(runs, kernel) -> None:
    """What lies behind the entries depends on the number of devices; neither draws nor adaptation may."""
    num_warmup, behind = 12, 3
    some = kernel.with_arguments({}, jnp.asarray(num_warmup, jnp.int32))
    target = Box(behind=behind)

    @jax.jit
    def padded(position: Position) -> Any:
        return loop(some, target, begin(some, target, position), 0, num_warmup + 3)

    chains, (statistics, draws) = jax.tree.map(lambda x: x, padded(initial_position(behind=behind)))
    _, expected, expected_draws = runs.go(runs.begin(num_warmup=num_warmup), 0, num_warmup + 3, num_warmup=num_warmup)
    assert not chains.state.position.local[:, NUM_ENTRIES - PADDED :].any()
    count = num_warmup + 3
    assert_close({k: v[:count] for k, v in statistics.items()}, expected, 1e-9)
    assert_close(Position(draws.shared[:count], draws.local[:count, :, :NUM_ENTRIES]), expected_draws, 1e-9)


# -- what is reported ------------------------------------------------------------------------------------------------


def test_statistics_are_what_the_kernel_declares(runs, kernel, warm, num_reported) -> None:
    chains, statistics, draws = runs.go(warm, 100, 4)
    assert {"lp", "log_likelihood", "n_steps"} <= statistics.keys()
    for name, values in statistics.items():
        assert values.shape in ((4, num_reported), (4,)), name
        assert kernel.statistics[name].unit, name
        assert kernel.statistics[name].description.endswith("."), name
    for name in ("lp", "log_likelihood"):
        assert values_are(statistics[name], (4, num_reported), "float64")
    assert jnp.issubdtype(statistics["n_steps"].dtype, jnp.integer)
    assert (statistics["n_steps"] >= 1).all()
    reported = first_chains(chains.state.position, num_reported)
    assert_same(jax.tree.map(lambda x: x[-1], draws), reported)
    density = Box().log_density(reported)
    np.testing.assert_allclose(statistics["lp"][-1], density.log_prior + density.log_likelihood, rtol=1e-12)
    np.testing.assert_allclose(statistics["log_likelihood"][-1], density.log_likelihood, rtol=1e-12)


def values_are(values: Any, shape: tuple[int, ...], dtype: str) -> bool:
    return values.shape == shape and values.dtype == dtype


def test_statistics_that_kernels_share_mean_the_same(runs, warm, num_reported) -> None:
    """A kernel that declares one of these declares what diagnostics read under that name."""
    _, statistics, _ = runs.go(warm, 100, 20)
    if "diverging" in statistics:
        assert values_are(statistics["diverging"], (20, num_reported), "bool")
    if "accepted" in statistics:
        assert values_are(statistics["accepted"], (20, num_reported), "bool")
        assert statistics["accepted"].any()
    if "energy" in statistics:
        assert values_are(statistics["energy"], (20, num_reported), "float64")
        assert (statistics["energy"] >= -statistics["lp"]).all(), "energy is potential plus kinetic"
    if "step_size" in statistics:
        assert values_are(statistics["step_size"], (20,), "float64")
        assert (statistics["step_size"] > 0).all()
    if "acceptance_rate" in statistics:
        assert values_are(statistics["acceptance_rate"], (20, num_reported), "float64")
        assert ((statistics["acceptance_rate"] >= 0) & (statistics["acceptance_rate"] <= 1)).all()


def test_gradients_are_counted_as_they_are_taken(runs, kernel, warm) -> None:
    calls = []

    class Counted(Box):
        def log_density_parts(self, position: Position) -> DensityParts:
            jax.debug.callback(lambda: calls.append(1))
            return super().log_density_parts(position)

    _, info = jax.jit(lambda s: kernel.step(key_at(0), s, Counted(), runs.tuning(warm)))(warm.state)
    jax.effects_barrier()
    assert len(calls) == int(info.n_steps)


@pytest.mark.parametrize("runs", with_trait("is_adjusted", True), indirect=True)
@pytest.mark.parametrize("height", [1e9, np.nan, np.inf, -np.inf])
def test_a_rejected_state_is_counted_again(runs, kernel, num_reported, height) -> None:
    """Islands of 1.5 with chains in steps that overshoot them: every stored draw is the start."""
    origin = jax.tree.map(jnp.zeros_like, initial_position())
    changed = {"initial_step_size": 1e3, "height": height, "num_warmup": 0}
    start = runs.begin(origin, **changed)
    chains, statistics, draws = runs.go(start, 0, 8, **changed)
    assert draws.shared.shape == (8, num_reported, NUM_SHARED)
    assert draws.local.shape == (8, num_reported, NUM_ENTRIES, WIDTH)
    assert not any(x.any() for x in draws)
    assert_same(chains.state._replace(num_steps=start.state.num_steps), start.state)
    for name in ("acceptance_rate", "accepted", "lp"):
        assert not statistics.get(name, np.zeros(1)).any(), name
    assert statistics.get("diverging", np.ones(1)).all()
    assert jnp.isfinite(statistics.get("energy", np.ones(1))).all()


def test_the_kernel_says_what_it_is_and_what_it_costs(kernel) -> None:
    assert kernel.pretty_name
    assert kernel.reference
    assert kernel.expected_gradients() >= 1
    assert kernel.min_chains >= 1
    assert kernel.chain_multiple >= 1
    for num_chains in range(kernel.chain_multiple, 20, kernel.chain_multiple):
        assert 1 <= kernel.num_chains_reported(num_chains) <= num_chains
