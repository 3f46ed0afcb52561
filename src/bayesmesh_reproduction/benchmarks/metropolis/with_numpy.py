"""Contenders in NumPy, as published and with the right density; float64, on one core."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm

from bayesmesh_reproduction.benchmarks.metropolis.states import WalkCase, describe_states
from bayesmesh_reproduction.benchmarks.metropolis.target import LOCATIONS, SCALES, START, WEIGHTS, density


class _Plain:
    """Nothing to compile."""

    def prepare(self, case: WalkCase) -> dict[str, object]:
        """Store the sizes."""
        self.case = case
        return {"compile_s": 0.0, "platform": "cpu"}


class Published(_Plain):
    """The published sampler: components by `scipy.stats`, in log scale, with the published density."""

    def __init__(self) -> None:
        locations, scales, weights = (np.reshape(each, (-1, 1)) for each in (LOCATIONS, SCALES, WEIGHTS))
        self.components, self.log_weights = norm(locations, scales), np.log(weights)

    def _log_density(self, position: np.ndarray) -> np.ndarray:
        log_density: np.ndarray = -logsumexp(self.log_weights - self.components.logpdf(position), axis=0)
        return log_density

    def run(self, repeat: int) -> dict[str, object]:
        """Take all steps of all chains."""
        generator, chains = np.random.default_rng(repeat), self.case["chains"]
        position = np.full(chains, START)
        log_density = self._log_density(position)
        for _ in range(self.case["samples"]):
            proposal = position + self.case["scale"] * generator.standard_normal(chains)
            proposed = self._log_density(proposal)
            is_accepted = np.log(generator.random(chains)) < proposed - log_density
            position = np.where(is_accepted, proposal, position)
            log_density = np.where(is_accepted, proposed, log_density)
        return describe_states(position)


class Correct(_Plain):
    """The right density, written for speed: no logarithm, four exponentials, sums in place."""

    def run(self, repeat: int) -> dict[str, object]:
        """Take all steps of all chains; if means are kept, sum up every state."""
        generator, chains = np.random.default_rng(repeat), self.case["chains"]
        position, total = np.full(chains, START), np.zeros(chains)
        height = density(position, np.exp)
        for _ in range(self.case["samples"]):
            proposal = generator.standard_normal(chains)
            proposal *= self.case["scale"]
            proposal += position
            proposed = density(proposal, np.exp)
            is_accepted = generator.random(chains) * height < proposed
            np.copyto(position, proposal, where=is_accepted)
            np.copyto(height, proposed, where=is_accepted)
            if self.case["keeps_means"]:
                total += position
        return describe_states(position, total / self.case["samples"] if self.case["keeps_means"] else None)
