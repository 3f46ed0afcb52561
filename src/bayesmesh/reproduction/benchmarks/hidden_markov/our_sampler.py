"""This project's programs on the same data: those of `bayesmesh sample`, without a store."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from bayesmesh.config.blocks import ComputeSettings, SamplingSettings
from bayesmesh.config.registry import component_path, load_component, read_options
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.models.hidden_markov import HiddenMarkov, Options
from bayesmesh.reproduction.benchmarks.hidden_markov.effective_draws import LATENTS, describe
from bayesmesh.sampling.collective import make_target
from bayesmesh.sampling.mesh import build_mesh, configure_jax
from bayesmesh.sampling.program import PROGRAMS, GroupKey, Program
from bayesmesh.sampling.rows import lay_out_rows

__all__ = ["Ours"]

Arrays = dict[str, np.ndarray]
"""Statistics, or draws (iteration, chain, ...), on the host."""


class Ours:
    """A kernel of this project with many chains, spread over all devices.

    Args:
        data: file with the emissions (process, time), float64.
        kernel: name of the kernel.
        chains, warmup, draws: the budget.
        dtype: dtype of latents and gradients.
        initial: start of the chains, as in `sampling.initial`.
        options: options of the kernel.
    """

    def __init__(
        self,
        data: str,
        kernel: str,
        chains: int,
        warmup: int,
        draws: int,
        dtype: str,
        initial: dict[str, object],
        options: dict[str, object],
    ) -> None:
        self.emissions = np.load(data, allow_pickle=False)
        self.num_draws, self.kernel, self.kernel_options = draws, kernel, options
        self.compute = ComputeSettings.model_validate({"dtype": dtype})
        self.sampling = SamplingSettings.model_validate({"chains": chains, "warmup": warmup, "initial": initial})

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Compile the programs, and run them once."""
        del case
        configure_jax(self.compute)
        begin = time.perf_counter()
        program = self._program()
        self.compiled = {name: program.trace(name).lower().compile() for name in PROGRAMS}
        seconds = time.perf_counter() - begin
        self.data = program.put_data({"emissions": self.emissions})
        self.arguments = program.arguments
        self._sample(0)
        return {
            "compile_s": seconds,
            "warmup": self.sampling.warmup,
            "dtype": self.compute.dtype,
            "platform": program.mesh.devices.flat[0].platform,
            "devices": program.mesh.devices.size,
        }

    def _program(self) -> Program:
        num_rows, num_steps = self.emissions.shape
        spec = DataSpec(num_rows, {"emissions": FieldSpec((num_steps,), "float64")}, {}, self.compute.dtype)
        num_chains, warmup = self.sampling.chains, self.sampling.warmup
        mesh = build_mesh(self.compute, num_chains=num_chains, is_sharded=False)
        model = HiddenMarkov(Options(), spec)
        target = make_target(model, spec, lay_out_rows(num_rows, 1, num_rows), mesh, self.compute.sharding)
        options = read_options(component_path("kernel", self.kernel)).model_validate(self.kernel_options)
        kernel = load_component("kernel", self.kernel)(options, warmup)
        return Program(target, kernel, mesh, self.sampling, num_chains, max(warmup, self.num_draws))

    def _sample(self, seed: int) -> tuple[Arrays, Arrays, Arrays]:
        """Return statistics of warmup, those of the draws, and the draws (draw, chain, ...) on the host."""
        import jax

        run = (self.arguments(GroupKey(seed, 0)), self.data)
        warmup = self.sampling.warmup
        state = self.compiled["initialise"](*run)
        state, warm, _ = self.compiled["segment"](*run, state, np.uint32(0), np.int32(warmup))
        _, info, draws = self.compiled["segment"](*run, state, np.uint32(warmup), np.int32(self.num_draws))
        found: tuple[Arrays, Arrays, Arrays] = jax.device_get((warm, info, draws))
        return found

    def run(self, repeat: int) -> dict[str, object]:
        """Sample from the start: warmup and draws."""
        begin = time.perf_counter()
        warm, info, draws = self._sample(1 + repeat)
        seconds = time.perf_counter() - begin
        by_chain = {k: np.swapaxes(draws[k], 0, 1)[:, : self.num_draws] for k in LATENTS}
        gradients = int(warm["n_steps"][: self.sampling.warmup].sum()) + int(info["n_steps"][: self.num_draws].sum())
        return {
            **describe(by_chain, seconds),
            "gradients_per_draw": float(info["n_steps"][: self.num_draws].mean()),
            "gradients_per_s": gradients * self.sampling.chains / seconds,
            "divergent": float(info["diverging"][: self.num_draws].mean()),
        }
