"""Chains whose log density is not finite fail with a verdict and a page that name them; other experiments are shown."""

from __future__ import annotations

import html
import re
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.operations import status
from bayesmesh.operations.status import status_table
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.jobs import make_job
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.slurm.queue import Queue
from bayesmesh.workflow.stages import diagnose, report
from recording import record_as

EXPERIMENT = (
    "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\nsampling: {draws: 50}\n"
)


def write_posterior(layout: ExperimentLayout, odd: dict[int, tuple[int, float]], chains: int) -> None:
    """Write a posterior of one scalar latent; `odd` maps a chain to the draw from which its log density is a value."""
    random = np.random.default_rng(0)
    lp, energy, level = (random.normal(size=(chains, 50)) for _ in range(3))
    for chain, (draw, value) in odd.items():
        lp[chain, draw:] = value
        energy[chain, draw:] = -value
    statistics = {"lp": lp, "energy": energy, "diverging": np.zeros((chains, 50), bool)}
    groups = {"summaries": {"log_density": lp}, "posterior": {"level": level}, "sample_stats": statistics}
    root = open_group(layout.posterior, "w")
    for name, arrays in groups.items():
        group = root.create_group(name)
        for each, values in arrays.items():
            write_array(group, each, values, ("chain", "draw"))


@pytest.mark.parametrize("severity", ["fail", "warn"])
@pytest.mark.parametrize(
    ("odd", "chains", "said"),
    [
        ({1: (7, -np.inf)}, 4, "43 values of summaries are infinite or not a number, in chain 1 from draw 7 on (log_density)"),
        ({0: (49, np.nan), 2: (3, np.inf)}, 4, "in chain 0 from draw 49 on (log_density), chain 2 from draw 3 on"),
        (dict.fromkeys(range(12), (0, -np.inf)), 12, "chain 7 from draw 0 on (log_density), 4 more chains"),
    ],
    ids=["one chain", "two chains", "all draws"],
)  # fmt: skip
def test_chains_that_are_not_finite_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: dict[int, tuple[int, float]], chains: int, said: str, severity: str
) -> None:  # fmt: skip
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [bad, good]\n")
    gates = "".join(
        f"  {name}: {{limit: 2.0, severity: {severity}}}\n" for name in ("r_hat", "ess_bulk", "ess_tail", "mcse_mean")
    )
    for name in ("bad", "good"):
        (tmp_path / "config" / "experiments" / f"{name}.yaml").write_text(f"{EXPERIMENT}gates:\n{gates}")
    monkeypatch.setattr(status, "read_queue", lambda *_: Queue())
    plan = Plan(str(tmp_path / "config"), str(tmp_path / "results"))
    for name in ("bad", "good"):
        layout = plan.layout(name)
        write_posterior(layout, odd if name == "bad" else {}, chains)
        record_as(layout.results, name, "assemble", [layout.posterior])
        for stage in (diagnose, report):
            verb = stage.__name__.rpartition(".")[2]
            spec = make_job(verb, name, plan.experiments[name], plan.results, plan.experiments)
            line = stage.run(spec, Ledger(layout.ledger_part(verb), verb), *([()] if stage is report else []))
            made_with = {"specification": spec.digest, "code": plan.code_of_stage(verb, name)}
            record_as(layout.results, name, verb, spec.outputs, **made_with)
            if (name, stage) == ("bad", diagnose):
                assert line.startswith("verdict fail; ")
                assert said in line
        assert layout.page.exists()
    verdict = read_verdict(plan.layout("bad").verdict)
    assert (verdict.verdict, verdict.gates[0].name) == ("fail", "finite")
    page = html.unescape(plan.layout("bad").page.read_text())
    assert said in re.sub(r"\s+", " ", page)
    assert "non-finite values" in page
    good = read_verdict(plan.layout("good").verdict)
    assert "finite" not in [gate.name for gate in good.gates]
    # "pass, older": the posterior was not assembled with these settings.
    rows = {line.split()[0]: line.split()[1].rstrip(",") for line in status_table(plan).splitlines()[1:3]}
    assert rows == {"bad": "fail", "good": good.verdict}
