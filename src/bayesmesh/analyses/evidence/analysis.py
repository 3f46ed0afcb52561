"""evidence: estimate the marginal likelihood, from which posterior probabilities of models are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject
from bayesmesh.analyses.evidence.table import MOST_ERROR, Estimate, best_estimate, read_evidence
from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.sections import KeyNumber, Section, render
from bayesmesh.analyses.options import EvidenceOptions as Options


class Evidence(Analysis):
    """The evidence by bridge sampling, and by tempered chains where there are any."""

    pretty_name = "Evidence"
    outputs = ("evidence.csv",)
    message = "Estimate the evidence of {experiment}"
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require a proper prior, and few enough coordinates for a normal with a full covariance matrix."""
        from bayesmesh.analyses.evidence.estimate import check_evidence

        del latents
        check_evidence(bound)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Evaluate the density at draws and at points of fitted normals, and write the estimates."""
        from bayesmesh.analyses.evidence.estimate import estimate_evidence

        del others
        return estimate_evidence(subject.bound, subject.posterior, self.options, files["evidence.csv"])

    def section(self, files: Mapping[str, Path]) -> Section:
        """Show the estimates with their errors, and whether they agree."""
        estimates = read_evidence(files["evidence.csv"])
        best, doubts = best_estimate(estimates), disagreements(estimates)
        rows = [(METHODS[each.method], each) for each in estimates]
        body = render(Path(__file__).with_name("section.html"), sentences=sentences(estimates), rows=rows)
        if best is None:
            return Section(body, [KeyNumber("Log evidence", "not known", "", "warn")], doubts=doubts)
        number = KeyNumber("Log evidence", _text(best), f"nats, {METHODS[best.method]}")
        return Section(body, [number], doubts=doubts)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the best estimate."""
        best = best_estimate(read_evidence(files["evidence.csv"]))
        return f"log evidence {_text(best)}" if best is not None else ""


METHODS = {"bridge": "bridge sampling", "tempered": "tempered chains", "prior": "draws of the prior"}

AGREE = 3.0
"""Standard errors of a difference between methods beyond which one of them must be wrong."""


def _text(estimate: Estimate) -> str:
    return f"{formats.fixed(estimate.log_evidence, 2)} ± {formats.fixed(estimate.error, 2)}"


def disagreements(estimates: Sequence[Estimate]) -> list[str]:
    """Return sentences on estimates that differ by more than their errors allow.

    Draws of the prior may miss a narrow peak, so they count only where they find more than the chains.
    """
    usable = {each.method: each for each in estimates if each.is_usable}
    found = []
    for method, other in usable.items():
        if method == "bridge" or "bridge" not in usable:
            continue
        bridge = usable["bridge"]
        gap, error = other.log_evidence - bridge.log_evidence, math.hypot(other.error, bridge.error)
        if abs(gap) <= AGREE * error or (method == "prior" and gap < 0):
            continue
        size = f"{formats.fixed(abs(gap), 2)} ± {formats.fixed(error, 2)} nats"
        name = METHODS[method]
        said = f"The log evidence from {name} is {size} {'above' if gap > 0 else 'below'} that from the draws (bridge sampling)"
        if gap > 0:
            said += f": these draws may lack about {formats.share(1 - math.exp(-gap), 0)} of the posterior mass, for example a mode that no chain met."
        else:
            said += ", more than their errors allow: at least one of the two is wrong."
        found.append(said)
    return found


def sentences(estimates: Sequence[Estimate]) -> list[str]:
    """Return what the estimates say, in words."""
    best = best_estimate(estimates)
    if best is None:
        said = ["The evidence is not known well enough to be used."]
    else:
        said = [
            f"The log evidence (the log of the mean likelihood under the prior) is {_text(best)} nats "
            f"({METHODS[best.method]})."
        ]
    for each in estimates:
        name = METHODS[each.method].capitalize()
        if each.problem:
            said.append(f"{name}: {each.problem}.")
        elif not each.error <= MOST_ERROR:
            said.append(f"{name} has an error above {MOST_ERROR:g} nat and is not used.")
        if each.num_left_out:
            part = each.num_left_out / (each.num_left_out + each.num_draws)
            said.append(
                f"{name} leaves out {formats.share(part)} of the draws, because they lie on the edge of the support."
            )
    num_usable, doubts = sum(each.is_usable for each in estimates), disagreements(estimates)
    if num_usable > 1 and not doubts:
        said.append(f"{'Both' if num_usable == 2 else 'All'} methods agree within their errors.")
    said += doubts
    said.append(
        "The evidence depends on the width of the prior even where the posterior does not: compare models by it only if their priors state what was known beforehand."
    )
    return said
