"""This project's programs on the same data: those of `bayesmesh sample`, without a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.sampling.program.chain_group import PROGRAMS
from bayesmesh.sampling.program.sizes import make_program
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.workflow.components import program_settings
from bayesmesh.workflow.jobs import Job
from bayesmesh_reproduction.benchmarks.hidden_markov.sampler import LATENTS, Sampler, describe
from bayesmesh_reproduction.benchmarks.worker import timed


class Ours(Sampler):
    """A kernel of this project with many chains, spread over all devices.

    Args:
        kernel: name of the kernel.
        dtype: dtype of latents and gradients.
        initial: start of the chains, as in `sampling.initial`.
        options: options of the kernel.
        budget: data, chains, warmup and draws, see `Sampler`.
    """

    def __init__(
        self, kernel: str, dtype: str, initial: Mapping[str, object], options: Mapping[str, object], **budget: Any
    ) -> None:
        super().__init__(**budget)
        config = {
            "model": {"name": "hidden_markov"},
            "kernel": {"name": kernel, **options},
            # Chains are spread over the devices: the rows are too few to be.
            "sampling": {"mode": "independent", "chains": self.chains, "warmup": self.warmup, "initial": initial},
            "compute": {"dtype": dtype, "row_tile": len(self.emissions)},
        }
        self.spec = Job(stage="sample", experiment="hidden_markov", config=config, num_chains=self.chains)

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Compile the programs, and run them once."""
        configure_jax(self.spec.compute)
        facts = super().prepare(case)
        self.data = self.program.put_data({"emissions": self.emissions})
        self._iterate(0)
        devices = self.program.mesh.devices
        about = {"dtype": self.spec.compute.dtype, "platform": devices.flat[0].platform, "devices": devices.size}
        return {**facts, **about}

    def compile(self) -> None:
        """Compile the programs."""
        num_rows, num_steps = self.emissions.shape
        fields = {"emissions": FieldSpec((num_steps,), "float64")}
        data_spec = DataSpec(num_rows, fields, {}, self.spec.compute.dtype)
        slots = max(self.warmup, self.num_draws)
        self.program = make_program(program_settings(self.spec), data_spec, slice_draws=slots)
        self.compiled = {name: self.program.trace(name).lower().compile() for name in PROGRAMS}

    def _iterate(self, seed: int) -> Any:
        """Return statistics of warmup, those of the draws, and the draws (draw, chain, ...) on the host."""
        run = (self.program.arguments(GroupKey(seed, 0)), self.data)
        state, _ = self.compiled["initialise"](*run)
        state, warm, _ = self.compiled["segment"](*run, state, np.uint32(0), np.int32(self.warmup))
        _, info, draws = self.compiled["segment"](*run, state, np.uint32(self.warmup), np.int32(self.num_draws))
        statistics = [self.program.statistics_to_host(*each) for each in ((warm, self.warmup), (info, self.num_draws))]
        return *statistics, jax.device_get(draws)

    def run(self, repeat: int) -> dict[str, object]:
        """Sample from the start: warmup and draws."""
        (warm, info, draws), seconds = timed(lambda: self._iterate(1 + repeat))
        by_chain = {k: np.swapaxes(draws[k], 0, 1)[:, : self.num_draws] for k in LATENTS}
        steps = info["n_steps"]
        return {
            **describe(by_chain, seconds),
            "gradients_per_draw": float(steps.mean()),
            "gradients_per_s": int(warm["n_steps"].sum() + steps.sum()) / seconds,
            "divergent": float(info["diverging"].mean()),
        }
