"""This project's programs on the targets: those of `bayesmesh sample`, without a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bayesmesh.config.loading import load_experiment
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.sampling.program.chain_group import PROGRAMS
from bayesmesh.sampling.program.packed_statistics import Packed
from bayesmesh.sampling.program.sizes import make_program
from bayesmesh.sampling.program.starts import start_chains
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.workflow.components import program_settings
from bayesmesh.workflow.jobs import Job, make_job
from bayesmesh_reproduction.benchmarks.convergence.posterior import Posterior, quantity_names
from bayesmesh_reproduction.benchmarks.convergence.runs import LOOKS, Round, measure
from bayesmesh_reproduction.benchmarks.worker import timed


class Ours:
    """A kernel of this project.

    Args:
        kernel: name of the kernel.
        options: its options where they are not the defaults.
        chains: number of chains.
        limit_s, budget: see `measure`.
        settings: keys of `sampling` and `compute` where they are not the defaults.
        experiment: file of an experiment whose settings are taken instead of all these.
    """

    def __init__(
        self, kernel: str, chains: int, limit_s: float, budget: int, options: Mapping[str, Any] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None, experiment: str = "",
    ) -> None:  # fmt: skip
        self.kernel, self.options, self.chains = kernel, dict(options or {}), chains
        self.limit_s, self.budget, self.settings = limit_s, budget, dict(settings or {})
        self.experiment = experiment

    def prepare(self, case: Mapping[str, Any]) -> dict[str, object]:
        """Compile the programs for a target."""
        self.posterior = posterior = Posterior(case["target"], "float32")
        job = self._spec()
        configure_jax(job.compute)
        self.warmup = job.sampling.warmup
        slots = max(self.warmup, *(b - a for a, b in zip((0, *LOOKS), LOOKS, strict=False) if b <= 2 * self.budget))

        def compile_programs() -> None:
            self.program = make_program(program_settings(job), posterior.spec, slice_draws=slots)
            self.compiled = {name: self.program.trace(name).lower().compile() for name in PROGRAMS}

        _, seconds = timed(compile_programs)
        self.data = self.program.put_data(posterior.rows)
        shapes = jax.eval_shape(lambda key: self.program.target.prior.sample(seed=key), jax.random.key(0))
        found = jax.eval_shape(posterior.quantities, dict(shapes))
        self.known = posterior.known(quantity_names({k: v.shape for k, v in found.items()}))
        self._quantities = jax.jit(jax.vmap(jax.vmap(posterior.quantities)))
        devices = self.program.mesh.devices
        about = {"dtype": job.compute.dtype, "platform": devices.flat[0].platform, "devices": devices.size}
        return {"compile_s": seconds, "warmup": self.warmup, **about}

    def _spec(self) -> Job:
        """Return the specification of `bayesmesh sample`."""
        if self.experiment:
            return make_job("sample", "benchmark", load_experiment(Path(self.experiment)), "results")
        config = {
            "model": {"name": self.posterior.target.model},
            "kernel": {"name": self.kernel, **self.options},
            "sampling": {"chains": self.chains, **self.settings.get("sampling", {})},
            "compute": dict(self.settings.get("compute", {})),
        }
        return Job(stage="sample", experiment="benchmark", config=config, num_chains=self.chains)

    def run(self, repeat: int) -> dict[str, object]:
        """Sample until convergence."""
        return measure(self, 1 + repeat, self.known, self.program.num_reported, self.limit_s, self.budget)

    def warm_up(self, seed: int) -> float:
        """Start the chains and adapt."""
        self.arguments, self.made = self.program.arguments(GroupKey(seed, 0)), 0
        method = self.program.sampling.initial.method
        initialise, together = self.compiled["initialise"], self.program.num_together
        self.state = start_chains(initialise, self.arguments, self.data, method=method, together=together)
        self.state, info, _ = self._segment(0, self.warmup)
        return self._gradients(info, self.warmup)

    def draw(self, until: int) -> Round:
        """Continue to that many draws."""
        parts, gradients = [], 0.0
        while self.made < until:
            count = min(until - self.made, self.program.slice_draws)
            self.state, info, draws = self._segment(self.warmup + self.made, count)
            gradients += self._gradients(info, count)
            found: Mapping[str, Any] = self.program.draws_to_host(draws, count)
            if self.posterior.target.quantities is not None:
                found = jax.device_get(self._quantities(found))
            columns = [found[k].reshape(count, self.program.num_reported, -1) for k in sorted(found)]
            parts.append(np.swapaxes(np.concatenate(columns, axis=2), 0, 1))
            self.made += count
        return Round(np.concatenate(parts, axis=1), gradients)

    def _segment(self, first: int, count: int) -> Any:
        given = (self.arguments, self.data, self.state, np.uint32(first), np.int32(count))
        return jax.block_until_ready(self.compiled["segment"](*given))

    def _gradients(self, info: Packed, count: int) -> float:
        """Return the number of gradients of all trajectories, without those for which chains wait."""
        of_reported = self.program.statistics_to_host(info, count)["n_steps"].sum()
        return float(of_reported) * self.program.num_chains / self.program.num_reported
