"""Options of every kernel of this package, importable without JAX.

The class of `some_name` is `SomeNameOptions`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bayesmesh.config.blocks import HamiltonianSettings, MetricName, RestartingSettings
from bayesmesh.config.settings import Argument, Settings


class CheesOptions(RestartingSettings):
    """Options of `chees`."""

    target_acceptance: Argument[float] = Field(
        0.7, gt=0, lt=1, description="Target acceptance for step size adaptation: the harmonic mean over chains."
    )
    initial_leapfrog_steps: Argument[float] = Field(
        10.0, ge=1, le=10_000, description="Maximum trajectory length at the first iteration, in leapfrog steps."
    )
    max_leapfrog_steps: Argument[int] = Field(
        256, ge=1, le=100_000, description="Maximum number of leapfrog steps per trajectory; each takes one gradient."
    )


class GibbsOptions(Settings):
    """Options of `gibbs`."""

    rounds: int = Field(1, ge=1, le=1000, description="Updates of every group of units per draw.")


class HmcOptions(HamiltonianSettings):
    """Options of `hmc`."""

    # A compile-time constant: a loop of known length is 5% faster on a GPU, because it checks no condition after each step.
    num_leapfrog_steps: int = Field(
        20,
        ge=1,
        le=100_000,
        description="Number of leapfrog steps per trajectory; each takes one gradient. With `trajectory_length`, the "
        "maximum.",
    )
    trajectory_length: float | None = Field(
        None,
        gt=0,
        le=1e6,
        description="Length of a trajectory, in units of the metric. It takes as many steps as the adapted step size "
        "requires; these are shortened to fit. By default, the number of steps is fixed.",
        examples=[1.57],
    )
    jitter: float = Field(
        0.0, ge=0, lt=1, description="Maximum relative jitter of the step size of a trajectory (no unit)."
    )
    integrator: Literal["leapfrog", "split"] = Field(
        "leapfrog",
        description="Integrator of the trajectories. `split` is exact for the normal from which chains start with "
        "`sampling.initial.method: laplace`, and needs `metric: curvature`.",
    )
    initial_step_size: Argument[float] = Field(
        0.01, gt=0, le=1e6, description="Step size at the first iteration, in units of the metric."
    )
    target_acceptance: Argument[float] = Field(
        0.75, gt=0, lt=1, description="Target mean acceptance for step size adaptation."
    )
    adaptation_fraction: Argument[float] = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of warmup in which step size and metric adapt; in the rest, both stay fixed.",
    )
    metric: MetricName = "identity"


class MalaOptions(HamiltonianSettings):
    """Options of `mala`."""

    target_acceptance: Argument[float] = Field(
        0.574, gt=0, lt=1, description="Target mean acceptance for step size adaptation."
    )


class MamsOptions(CheesOptions):
    """Options of `mams`."""

    target_acceptance: Argument[float] = Field(
        0.8, gt=0, lt=1, description="Target acceptance for step size adaptation: the harmonic mean over chains."
    )


class NutsOptions(RestartingSettings):
    """Options of `nuts`."""

    target_acceptance: Argument[float] = Field(
        0.9,
        gt=0,
        lt=1,
        description="Target mean acceptance over the points of a trajectory, for step size adaptation. If more than 1 "
        "in 2,000 warmup trajectories diverge after the first 35% of warmup, the distance of the target from 1 is "
        "halved.",
    )
    integrator: Literal["auto", "leapfrog", "split"] = Field(
        "auto",
        description="Integrator of the trajectories. `split` is exact for a normal with the mean and covariance that warmup learns, so "
        "its steps shrink less with the number of coordinates; where tails are heavy, they must be short. `auto` takes it for `glm` with 1,000 coordinates or more.",
    )
    max_tree_depth: int = Field(
        10,
        ge=1,
        le=20,
        description="Maximum number d of doublings of a trajectory, which takes at most 2^d - 1 gradients.",
    )


class RandomWalkOptions(HamiltonianSettings):
    """Options of `random_walk`."""

    target_acceptance: Argument[float] = Field(
        0.234, gt=0, lt=1, description="Target mean acceptance for adaptation of the proposal's scale."
    )
    initial_step_size: Argument[float] = Field(
        1.0, gt=0, le=1e6, description="Scale of the proposal at the first iteration, in units of the metric."
    )


class ReplicaExchangeOptions(HamiltonianSettings):
    """Options of `replica_exchange`."""

    inverse_temperature: Argument[float] = Field(
        0.25, gt=0, lt=1, description="Power of the likelihood in the hot chains; smaller is hotter."
    )
    num_leapfrog_steps: int = Field(
        10, ge=1, le=100_000, description="Number of leapfrog steps per trajectory; each takes one gradient."
    )


class TemperedSmcOptions(HamiltonianSettings):
    """Options of `tempered_smc`."""

    target_acceptance: Argument[float] = Field(
        0.8, gt=0, lt=1, description="Target mean acceptance over chains for step size adaptation."
    )
    initial_leapfrog_steps: Argument[float] = Field(
        20.0,
        ge=1,
        le=10_000,
        description="Maximum trajectory length below power 1, in leapfrog steps of the initial size.",
    )
    max_leapfrog_steps: Argument[int] = Field(
        256, ge=1, le=100_000, description="Maximum number of leapfrog steps per trajectory; each takes one gradient."
    )
    trajectories_per_power: Argument[int] = Field(
        5, ge=1, le=10_000, description="Number of trajectories of each chain between successive changes of the power."
    )
    effective_share: Argument[float] = Field(
        0.5,
        gt=0,
        lt=1,
        description="Target effective sample size of the weights at each change of the power, as a share of the chains.",
    )
    tempering_fraction: Argument[float] = Field(
        0.5, gt=0, lt=1, description="Share of warmup after which the likelihood has power 1, whatever the weights."
    )


class UnitHmcOptions(Settings):
    """Options of `unit_hmc`."""

    rounds: int = Field(1, ge=1, le=1000, description="Updates of every group of units per draw.")
    trajectory_length: Argument[float] = Field(
        2.65,
        gt=0,
        le=1e6,
        description="Length of a trajectory, in conditional standard deviations. A length of 1.57 ends in an "
        "independent draw given the other groups; a longer trajectory ends beyond the conditional mean.",
    )
    max_leapfrog_steps: Argument[int] = Field(
        16, ge=1, le=100_000, description="Maximum number of leapfrog steps of a trajectory, which is shortened to fit."
    )
    jitter: Argument[float] = Field(
        0.1, ge=0, lt=1, description="Maximum relative jitter of the step size of a trajectory (no unit)."
    )
    initial_step_size: Argument[float] = Field(
        0.5, gt=0, le=1e6, description="Step size at the first iteration, in conditional standard deviations."
    )
    target_acceptance: Argument[float] = Field(
        0.85, gt=0, lt=1, description="Target mean acceptance over units for the step size adaptation of each group."
    )
