"""Gibbs sampling of units that are normal given all else, such as users given films and films given users.

All units of a group are drawn at once, each exactly, so that there is no step size, and warmup only lets the chain
converge. Between groups the chain moves along directions that leave the likelihood unchanged, which alternating draws
would explore only slowly, and draws the latents outside all groups.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from bayesmesh.kernels.base import CHAIN, POSITION, Kernel, Position, Statistic, Target
from bayesmesh.kernels.hamiltonian.random_numbers import fold
from bayesmesh.kernels.hamiltonian.trajectory import STATISTICS
from bayesmesh.kernels.options import GibbsOptions as Options
from bayesmesh.kernels.targets import normals_of


class GibbsState(NamedTuple):
    """A point of every chain with its densities; the checkpoint.

    Attributes:
        position: where the chains are.
        log_prior, log_likelihood: (chain,) float64, nats.
    """

    position: Position
    log_prior: jax.Array
    log_likelihood: jax.Array


class GibbsInfo(NamedTuple):
    """Info of a step: (chain,) float64 ``lp`` and ``log_likelihood``, and () int32 ``n_steps``."""

    lp: jax.Array
    log_likelihood: jax.Array
    n_steps: jax.Array


class Gibbs(Kernel[GibbsState, tuple[()], GibbsInfo, tuple[()]]):
    """Exact draws of conditionally normal units, in turn; nothing is adapted."""

    pretty_name = "Gibbs"
    options: Options
    reference = "Salakhutdinov and Mnih 2008; redraws: Liu and Sabatti 2000"
    needs_normal_units = True
    statistics = {k: STATISTICS[k] for k in ("lp", "log_likelihood")} | {
        "n_steps": Statistic(
            "gradient", "Passes over the data: one for each group, one for all else, one for the density."
        ),
    }

    def expected_gradients(self) -> float:
        """Return one pass for each of two groups and one for all else per round, and one for the density."""
        return 3.0 * self.options.rounds + 1

    def init(self, key: Key[Array, " chain"], position: Position, target: Target) -> GibbsState:
        """Return the state at a position; needs one pass and no randomness."""
        log_prior, log_likelihood, _ = target.log_density(position)
        return GibbsState(position, log_prior, log_likelihood)

    def step(
        self, key: Key[Array, " chain"], state: GibbsState, target: Target, tuning: tuple[()]
    ) -> tuple[GibbsState, GibbsInfo]:
        """Redraw along unidentified directions, then draw every group and all else, `rounds` times."""
        normals, rounds = normals_of(target), self.options.rounds

        def one_round(number: Int[Array, ""], position: Position) -> Position:
            keys = fold(key, number)
            position = normals.redraw(fold(keys, normals.num_groups), position)
            for group in range(normals.num_groups):
                position = normals.draw(fold(keys, group), position, group)
            return normals.redraw_rest(fold(keys, normals.num_groups + 1), position)

        position = jax.lax.fori_loop(0, rounds, one_round, state.position)
        after = self.init(key, position, target)
        num_passes = rounds * (normals.num_groups + 1) + 1
        lp = after.log_prior + after.log_likelihood
        return after, GibbsInfo(lp, after.log_likelihood, jnp.asarray(num_passes, jnp.int32))

    def init_adaptation(self, state: GibbsState, target: Target) -> tuple[()]:
        """Return nothing."""
        return ()

    def adapt(
        self, adaptation: tuple[()], before: GibbsState, after: GibbsState, info: GibbsInfo, target: Target
    ) -> tuple[()]:
        """Return nothing."""
        return ()

    def tuning(self, adaptation: tuple[()], is_adapting: Bool[Array, ""] | bool) -> tuple[()]:
        """Return nothing."""
        return ()

    def state_axes(self) -> GibbsState:
        """Return the axes of a state."""
        return GibbsState(POSITION, CHAIN, CHAIN)  # type: ignore[arg-type]  # axes stand in for arrays

    def adaptation_axes(self) -> tuple[()]:
        """Return nothing."""
        return ()
