"""The `sampling` key: how many chains and draws, from which seed."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bayesmesh.config.settings import Settings
from bayesmesh.config.stop_settings import StopSettings

__all__ = ["InitialSettings", "SamplingSettings"]


class InitialSettings(Settings):
    """Where the chains start."""

    method: Literal["prior", "zero", "mode"] = "prior"
    """`prior`: a draw from the prior; `zero`: the origin of unconstrained space plus `spread` noise; `mode`: every chain
    optimises with Adam from its own prior draw."""
    spread: float = Field(1.0, gt=0, le=100)
    """Scales the starting draw in unconstrained space (no unit)."""
    steps: int = Field(150, ge=1, le=100_000)
    """Adam steps, for `mode`."""
    learning_rate: float = Field(0.05, gt=0, le=10)
    """Adam learning rate, for `mode`."""


class SamplingSettings(Settings):
    """Chains, draws and their randomness."""

    mode: Literal["independent", "sharded"] = "sharded"
    """`independent`: every chain group is a separate job; `sharded`: one job whose mesh spans all its devices."""
    chains: int = Field(4, ge=1, le=1_000_000)
    """Total number of chains."""
    chain_groups: int = Field(1, ge=1, le=10_000)
    """Number of jobs in `independent` mode; must divide `chains`."""
    warmup: int = Field(500, ge=0, le=10_000_000)
    """Warmup iterations per chain; never part of the posterior."""
    draws: int = Field(500, ge=4, le=100_000_000)
    """Draws per chain after warmup; with `stop`, the largest number."""
    stop: StopSettings | None = None
    """Rule that ends sampling before `draws`, at the first look that meets all targets; no rule if absent."""
    seed: int = Field(0, ge=0, lt=2**32)
    """Seed of all random numbers of the chains."""
    initial: InitialSettings = Field(InitialSettings())
    """Where the chains start."""
    segment_seconds: float = Field(60.0, ge=1e-6, le=3600)
    """Target time between two commits, in seconds; does not change the draws. A job killed without warning repeats at
    most this much."""
    grace_seconds: float = Field(20.0, ge=0, le=3600)
    """How long a job that is asked to stop (SIGTERM, SIGUSR1, Ctrl-C) waits for its devices, in seconds. Must be less
    than the scheduler allows, 30 s by default on Slurm."""
    on_changed_environment: Literal["refuse", "accept"] = "refuse"
    """Whether to continue chains with other software, hardware or mesh, where the run is no longer bitwise
    reproducible."""

    @property
    def chains_per_group(self) -> int:
        """Number of chains of one program."""
        return self.chains // self.chain_groups
