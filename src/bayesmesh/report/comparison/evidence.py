"""Compute posterior model probabilities from stored evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from bayesmesh.analyses.evidence.table import Estimate
from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.formats import Comparison

_REPLICATES = 2000


class ModelProbability(NamedTuple):
    """The evidence and the posterior probability of a model.

    Attributes:
        log_evidence: log evidence with its standard error, in nats.
        probability: posterior probability of the model, given equal prior probabilities.
        low, high: 95% interval of this probability, given the standard errors of all log evidences.
    """

    log_evidence: Comparison
    probability: float
    low: float
    high: float


def model_probabilities(estimates: Mapping[str, Estimate]) -> dict[str, ModelProbability]:
    """Return the posterior probability of each model, given equal prior probabilities.

    Args:
        estimates: model -> usable estimate of the evidence.

    >>> found = model_probabilities({"a": Estimate("bridge", -3.0, 0.0), "b": Estimate("bridge", -3.0, 0.0)})
    >>> found["a"].probability, found["a"].low
    (0.5, 0.5)
    """
    log_evidence = np.array([each.log_evidence for each in estimates.values()])
    errors = np.array([each.error for each in estimates.values()])
    noise = np.random.default_rng(0).standard_normal((_REPLICATES, len(errors))) * errors
    low, high = np.quantile(softmax(log_evidence + noise, axis=1), (0.025, 0.975), axis=0)
    numbers = zip(estimates.items(), softmax(log_evidence), low, high, strict=True)
    return {
        name: ModelProbability(Comparison(each.log_evidence, each.error), float(p), float(a), float(b))
        for (name, each), p, a, b in numbers
    }


def say_probabilities(found: Mapping[str, ModelProbability]) -> list[str]:
    """Return sentences that interpret posterior model probabilities; none without probabilities."""
    if not found:
        return []
    name, best = max(found.items(), key=lambda item: item[1].log_evidence.difference)
    interval = f"{formats.share(best.low)} to {formats.share(best.high)}"
    if best.low > 0.5:
        first = f"With equal prior probabilities, {name} has posterior probability {formats.share(best.probability)} ({interval})."
    else:
        first = (
            f"With equal prior probabilities, {name} is the most probable model, with {formats.share(best.probability)} "
            f"({interval}), which does not single it out."
        )
    return [
        first,
        "These probabilities follow from the evidence and depend on the width of the priors even where predictions do not; they say which "
        "model is most probable, assuming that one of them is true. To predict, use stacking.",
    ]
