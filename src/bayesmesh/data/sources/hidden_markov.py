"""Seventy processes of a hidden Markov chain with three states, bit for bit those of PyMC's example gallery.

"How to wrap a JAX function for use in PyMC", section "Marginal Hidden Markov Model"
(https://www.pymc.io/projects/examples/en/latest/howto/wrapping_jax_function.html). Signal 1.15, noise 0.15.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.data import base
from bayesmesh.data.base import Dataset
from bayesmesh.data.sources.options import HiddenMarkovOptions as Options

SIGNAL, NOISE = 1.15, 0.15
INITIAL = np.array([0.9, 0.09, 0.01])
TRANSITION = np.array([[0.9, 0.09, 0.01], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])


def _simulate_process(generator: np.random.Generator, num_steps: int) -> np.ndarray:
    """Return one process, (num_steps + 1,) float64: the path of states first, then all emissions in one call."""
    states = [generator.choice(3, p=INITIAL)]
    for _ in range(num_steps):
        states.append(generator.choice(3, p=TRANSITION[states[-1]]))
    return generator.normal((np.array(states) + 1) * SIGNAL, NOISE)


def simulate_processes(num_processes: int, num_steps: int, seed: int) -> np.ndarray:
    """Return processes drawn one after another from one generator, (process, num_steps + 1) float64.

    The gallery first draws a single process for a figure, which is not part of the data but advances the generator.
    """
    generator = np.random.default_rng(seed)
    _simulate_process(generator, num_steps)
    return np.stack([_simulate_process(generator, num_steps) for _ in range(num_processes)])


class Source(base.Source):
    """Field ``emissions`` (num_steps + 1,) float64; truth under the names of the latents of `hidden_markov`."""

    pretty_name = "Simulated hidden Markov processes"
    offers = ()
    options: Options

    def read(self, folder: Path) -> Dataset:
        """Simulate; the same options give the same processes."""
        del folder
        options = self.options
        return Dataset(
            rows={"emissions": simulate_processes(options.num_processes, options.num_steps, options.seed)},
            declared_counts={"rows": options.num_processes},
            truth={
                "signal": np.asarray(SIGNAL),
                "noise": np.asarray(NOISE),
                "initial": INITIAL,
                "transition": TRANSITION,
            },
        )
