"""The contract of a kernel at work, for every kernel of the registry, on a small normal target."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.registry import load_component, options_class
from bayesmesh.kernels.base import Kernel, Position, first_chains
from bayesmesh.sampling.checks.kernel import offers_turns
from bayesmesh.sampling.program.packed_statistics import pack
from bayesmesh.sampling.program.turns import Rows, make_draws, no_rows
from kernel_options import kernels_of_any_target
from kernel_runs import (
    BEHIND,
    NUM_CHAINS,
    NUM_ENTRIES,
    NUM_SHARED,
    NUM_WARMUP,
    PADDED,
    WIDTH,
    Box,
    Chains,
    Runs,
    box_density,
    initial_position,
    key_at,
    make,
    near_mode,
    runs_of,
)

POINT = ("position", "log_prior", "log_likelihood", "gradient")
"""Fields of a state that tell where its chains are; not every kernel keeps a gradient."""


def with_trait(trait: str, value: bool) -> list[str]:
    """Return the kernels of which a trait is so."""
    return [name for name in kernels_of_any_target() if getattr(load_component("kernel", name), trait) is value]


@pytest.fixture(scope="module", params=[*kernels_of_any_target(), "nuts, split"])
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


def test_a_state_is_its_own_checkpoint(runs, warm) -> None:
    """Cut anywhere and taken through NumPy, warmup and sampling are bit for bit what they are in one piece."""
    whole, *out = runs.go(runs.begin(), 0, NUM_WARMUP)
    for cut in (1, 13):
        first, *out_first = runs.go(runs.begin(), 0, cut)
        second, *out_second = runs.go(through_host(first), cut, NUM_WARMUP - cut)
        assert_same(second, whole)
        assert_same(jax.tree.map(lambda *x: np.concatenate(x), out_first, out_second), out)

    whole, *out = runs.go(warm, 100, 12)
    first, *_ = runs.go(warm, 100, 5)
    second, *out_second = runs.go(through_host(first), 105, 7)
    assert_same(second, whole)
    assert_same(out_second, jax.tree.map(lambda x: x[5:], out))


def test_the_state_carries_the_density_at_its_position(runs) -> None:
    # A low target makes rejections frequent: a kernel that draws from its whole trajectory seldom stays where it is.
    bold = {"target_acceptance": 0.3} if "target_acceptance" in runs.kernel.numeric_options else {}
    chains, statistics, _ = runs.go(runs.warm_up(**bold), NUM_WARMUP, 40, **bold)
    # Split steps are exact in a normal.
    if "accepted" in statistics and "split" not in runs.name:
        assert not statistics["accepted"][-3:].all(), "this test wants a rejection among its last steps"
    fresh = runs.begin(chains.state.position).state
    for name in (n for n in POINT if hasattr(fresh, n)):
        assert_close(getattr(chains.state, name), getattr(fresh, name))


# -- keys, chains and chain sets -------------------------------------------------------------------------------------


def test_the_same_keys_give_the_same_draws_and_others_do_not(runs, warm) -> None:
    one, again, other = (runs.go(warm, first, 20)[2] for first in (100, 100, 120))
    assert_same(one, again)
    assert (one.shared != other.shared).any(axis=(0, 2)).all()


@pytest.mark.parametrize("runs", with_trait("interacts", False), indirect=True)
def test_chains_are_strangers_once_warmup_is_over(runs, warm) -> None:
    """A chain's transition is decided by its own key and state: reordering chains reorders draws."""
    order = np.random.default_rng(0).permutation(NUM_CHAINS)

    def reorder(tree: Any) -> Any:
        return jax.tree.map(lambda x: x[order] if x.ndim and x.shape[0] == NUM_CHAINS else x, tree)

    tuning = runs.tuning(warm)
    state, info = jax.device_get(runs.step(key_at(3), warm.state, tuning))
    reordered = runs.step(key_at(3)[order], reorder(jax.device_get(warm.state)), tuning)
    assert_same(reordered, (reorder(state), reorder(info)))


def test_every_chain_goes_its_own_way(warm) -> None:
    assert len(np.unique(np.asarray(warm.state.position.shared[:, -1]))) == NUM_CHAINS


SEEDS = (8, 9)
"""Of two chain sets."""


@pytest.fixture(scope="module")
def elsewhere(runs) -> tuple[Chains, dict[str, Any], Position]:
    return runs.elsewhere(*SEEDS)


def without_padding(padded: Any, like: Any) -> Any:
    """Return an array without the entries behind those of another."""
    return padded[tuple(map(slice, like.shape))]


def test_another_program_makes_the_same_chains(runs, elsewhere) -> None:
    """Mapped over chain sets, with options compiled in and padding behind the entries, draws are what they are alone.

    Pooling stays within a set; options that are known only when a program runs act as constants do; and what lies behind
    the entries, which depends on the number of devices, has no part in draws or adaptation.
    """
    chains, statistics, draws = elsewhere
    for i, seed in enumerate(SEEDS):
        alone, expected, expected_draws = runs.few(seed=seed, **runs.changed)
        # Another order of the same sums is a rounding error, which grows from step to step.
        for found, want in (
            (statistics, expected),
            (draws, expected_draws),
            (chains, alone),
        ):
            assert_close(jax.tree.map(lambda x, y, i=i: without_padding(x[i], y), found, want), want, 1e-8)
    assert (draws.shared[0] != draws.shared[1]).any()
    if runs.changed:
        other = runs.few(seed=SEEDS[0])[2]
        assert (other.shared != draws.shared[0]).any(), "the options have an effect"


def test_padding_behind_the_entries_never_moves(elsewhere) -> None:
    chains, _, draws = elsewhere
    for position in (chains.state.position, draws):
        assert position.local.shape[-2] == NUM_ENTRIES + BEHIND
        assert not position.local[..., NUM_ENTRIES - PADDED :, :].any()


def test_chain_sets_do_not_meet(runs, elsewhere) -> None:
    """Of the other set nothing is seen, to the bit."""
    first, other = (jax.tree.map(lambda x: x[0], found) for found in (elsewhere, runs.elsewhere(8, 10)))
    assert_same(first, other)


# -- options and warmup ----------------------------------------------------------------------------------------------


def kernels_and_metrics() -> list[tuple[str, str | None]]:
    """Every kernel with its own metric, and with `dense` where it offers that: they adapt differently."""
    pairs: list[tuple[str, str | None]] = []
    for name in kernels_of_any_target():
        schema = options_class("kernel", name).model_json_schema()["properties"].get("metric", {})
        pairs += [(name, None), *((name, metric) for metric in schema.get("enum", []) if metric == "dense")]
    return pairs


@pytest.mark.parametrize(("name", "metric"), kernels_and_metrics())
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
        assert all(np.array_equal(each, later_steps[0]) for each in steps)


def test_no_warmup_is_a_warmup(runs) -> None:
    chains, statistics, draws = runs.go(runs.begin(num_warmup=0), 0, 5, num_warmup=0)
    assert_same(chains.adaptation, runs.begin(num_warmup=0).adaptation)
    assert all(np.isfinite(x).all() for x in (*statistics.values(), *draws))
    assert make(runs.name, 0).num_adaptive == 0


def least_acceptance(kernel: Kernel) -> float:
    """What is taken at least where warmup has found a step size: 0.2, or a third of a target that is low."""
    return min(0.2, float(kernel.numeric_options.get("target_acceptance", 1.0)) / 3)


@pytest.mark.parametrize("runs", with_trait("is_adjusted", True), indirect=True)
def test_warmup_outlives_densities_that_are_not_finite(runs) -> None:
    """Outside of a box there is nothing; warmup ends with finite tuning and with chains that move."""
    chains = runs.warm_up(near_mode(), height=np.nan)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((chains, runs.tuning(chains))))
    _, statistics, draws = runs.go(chains, 100, 20, height=np.nan)
    assert (np.diff(draws.shared, axis=0) != 0).any(axis=2).mean() > least_acceptance(runs.kernel)
    assert np.abs(draws.shared[..., :-1]).max() <= 1.5
    assert np.isfinite(statistics["lp"]).all()


@pytest.mark.parametrize("runs", with_trait("is_adjusted", True), indirect=True)
@pytest.mark.parametrize("lost", [0, NUM_CHAINS - 1])
def test_a_chain_lost_from_the_start_spoils_no_other(runs, num_reported, lost) -> None:
    """One chain of six starts where nothing is finite: it stays and is reported, and the others are tuned as ever."""
    chains = runs.warm_up(near_mode(lost), height=np.nan)
    tuning = runs.tuning(chains)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(tuning))
    after, statistics, draws = runs.go(chains, 100, 20, height=np.nan)
    assert not np.isfinite(after.state.position.shared[lost]).any()
    others = np.arange(num_reported) != lost
    assert np.isfinite(statistics["lp"][:, others]).all()
    moves = np.asarray((np.diff(draws.shared[:, others], axis=0) != 0).any(axis=2))
    assert least_acceptance(runs.kernel) < moves.mean()
    assert moves.any(axis=0).all()
    if lost < num_reported:
        assert not np.isfinite(statistics["lp"][:, lost]).any()
        assert statistics.get("diverging", np.ones((20, num_reported)))[:, lost].all()
        assert not statistics.get("accepted", np.zeros((20, num_reported)))[:, lost].any()
    if "acceptance_rate" in statistics:
        assert least_acceptance(runs.kernel) < statistics["acceptance_rate"][:, others].mean()


# -- padding ---------------------------------------------------------------------------------------------------------


def test_padding_never_moves(runs, warm) -> None:
    _, _, draws = runs.go(warm, 100, 10)
    for position in (warm.state.position, draws):
        assert not position.local[..., -PADDED:, :].any()
    start = initial_position()
    for now, then in zip(warm.state.position, start, strict=True):
        assert (now != then).reshape(NUM_CHAINS, -1).any(axis=1).all()


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
    assert np.issubdtype(statistics["n_steps"].dtype, np.integer)
    assert (statistics["n_steps"] >= 1).all()
    reported = first_chains(chains.state.position, num_reported)
    assert_same(jax.tree.map(lambda x: x[-1], draws), reported)
    log_density = box_density(reported)
    np.testing.assert_allclose(statistics["lp"][-1], log_density, rtol=1e-12)
    np.testing.assert_allclose(statistics["log_likelihood"][-1], 0.75 * log_density, rtol=1e-12)


def values_are(values: Any, shape: tuple[int, ...], dtype: str) -> bool:
    return values.shape == shape and values.dtype == dtype


def test_statistics_that_kernels_share_mean_the_same(runs, warm, num_reported) -> None:
    """A kernel that declares one of these declares what diagnostics read under that name."""
    _, statistics, _ = runs.go(warm, 100, 20)
    if "diverging" in statistics:
        assert values_are(statistics["diverging"], (20, num_reported), "bool")
    # Split steps are exact in a normal.
    if "accepted" in statistics and "split" not in runs.name:
        assert values_are(statistics["accepted"], (20, num_reported), "bool")
        assert statistics["accepted"].any()
    if "energy" in statistics:
        assert values_are(statistics["energy"], (20, num_reported), "float64")
        assert (statistics["energy"] >= -statistics["lp"]).all(), "energy is potential plus kinetic"
    if "step_size" in statistics:
        assert any(values_are(statistics["step_size"], shape, "float64") for shape in ((20,), (20, num_reported)))
        assert (statistics["step_size"] > 0).all()
    if "acceptance_rate" in statistics:
        assert values_are(statistics["acceptance_rate"], (20, num_reported), "float64")
        assert ((statistics["acceptance_rate"] >= 0) & (statistics["acceptance_rate"] <= 1)).all()


def test_gradients_are_counted_as_they_are_taken(runs, warm) -> None:
    runs.calls.clear()
    _, info = runs.step(key_at(0), warm.state, runs.tuning(warm))
    jax.effects_barrier()
    assert len(runs.calls) == np.max(info.n_steps)


@pytest.mark.parametrize("runs", [name for name in kernels_of_any_target() if offers_turns(make(name))], indirect=True)
def test_parts_of_a_step_make_it(runs, kernel, warm, num_reported) -> None:
    """Also where chains begin their draws at different times; some transitions end early, at a wall."""
    num_draws, tuning, keys = 12, runs.tuning(warm), jax.random.split(jax.random.key(8), NUM_CHAINS)
    target, state, waiting, lengths = Box(np.nan), warm.state, [], []
    step = jax.jit(lambda key, state, tuning: kernel.step(key, state, target, tuning))
    for i in range(num_draws):
        state, info = step(jax.vmap(lambda k, i=i: jax.random.fold_in(k, i))(keys), state, tuning)
        waiting.append(Rows(pack(kernel, info, num_reported), state.position))
        lengths.append(info.n_steps)
    assert np.ptp(lengths, axis=1).any(), "chains have transitions of unequal length"
    given = no_rows(kernel, state.position, num_draws), jnp.uint32(0), jnp.int32(num_draws), jnp.int32(0)
    after, _, rows = jax.jit(lambda *given: make_draws(kernel, keys, warm.state, target, tuning, *given))(*given)
    stacked = jax.tree.map(lambda *x: np.stack(x), *waiting)
    for found, wanted in zip(jax.tree.leaves((after, rows)), jax.tree.leaves((state, stacked)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("runs", with_trait("is_adjusted", True), indirect=True)
@pytest.mark.parametrize("height", [1e9, np.nan, np.inf, -np.inf])
def test_a_rejected_state_is_counted_again(runs, kernel, num_reported, height) -> None:
    """An island with chains in steps that overshoot it, or of one point: every stored draw is the start."""
    origin = jax.tree.map(jnp.zeros_like, initial_position())
    overshoot = {"initial_step_size": 1e3} if "initial_step_size" in kernel.numeric_options else {"half_width": 0.0}
    changed = {**overshoot, "height": height, "num_warmup": 0}
    start = runs.begin(origin, **changed)
    chains, statistics, draws = runs.go(start, 0, 8, **changed)
    assert draws.shared.shape == (8, num_reported, NUM_SHARED)
    assert draws.local.shape == (8, num_reported, NUM_ENTRIES, WIDTH)
    assert not any(x.any() for x in draws)
    before, after = ({k: getattr(c.state, k) for k in POINT if hasattr(c.state, k)} for c in (start, chains))
    assert_same(after, before)
    for name in ("acceptance_rate", "accepted", "lp"):
        assert not statistics.get(name, np.zeros(1)).any(), name
    assert statistics.get("diverging", np.ones(1)).all()
    assert np.isfinite(statistics.get("energy", np.ones(1))).all()
