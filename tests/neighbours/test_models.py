"""First examples of the documentations of NumPyro and PyMC, written anew: each gives back what its data were made from.

`make test` samples one of each in its own process, `make nightly` runs all through the workflow's stages.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayesmesh as bm
from bayesmesh.errors import UserError
from neighbours.in_process import sample_here

MODULES = {"numpyro": "numpyro_models", "pymc": "pymc_models"}
ALWAYS = [("numpyro", "logistic"), ("pymc", "logistic")]
FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER))
EXAMPLES = {
    (kind, name): example
    for kind, module in MODULES.items()
    for name, example in importlib.import_module(module).EXAMPLES.items()
}
IS_NIGHTLY = "BAYESMESH_NIGHTLY" in os.environ


@pytest.mark.parametrize(("kind", "name"), list(EXAMPLES) if IS_NIGHTLY else ALWAYS)
def test_an_example_gives_back_what_its_data_were_made_from(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(FOLDER)
    example = EXAMPLES[kind, name]
    data, truth = example.simulate(np.random.default_rng(11))
    model = {"name": kind, "function": f"{MODULES[kind]}:{name}", **example.options}
    if not IS_NIGHTLY:
        check(truth, sample_here(model, data, tmp_path, "float32", 300))
        return
    blocks = {"draws": 500, "warmup": 500, "chains": 4, "seed": 3, **example.blocks}

    def run() -> bm.Result:
        return bm.sample(model, data, name=name.replace("_", "-"), results=tmp_path, progress=False, **blocks)

    if example.refused:
        with pytest.raises(UserError, match=example.refused):
            run()
        return
    result = run()
    verdict = bm.verdict(result)
    failed = [gate.name for gate in verdict.gates if gate.verdict == "fail"]
    assert failed == [example.failed] * bool(example.failed), str(verdict)
    posterior, others = result["posterior"], result.get("deterministics")
    check(truth, {name: (posterior if name in posterior else others)[name].to_numpy() for name in truth})


def check(truth: Mapping[str, Any], draws: Mapping[str, np.ndarray]) -> None:
    """Hold means to what the data were made from."""
    for latent, expected in truth.items():
        mean, sd = draws[latent].mean((0, 1)), draws[latent].std((0, 1))
        z = np.abs(mean - expected) / np.maximum(sd, 1e-12)
        assert (z < 4).all(), f"{latent}: {mean} +- {sd} for {expected}"


def test_there_are_fifteen_examples_of_each_that_run() -> None:
    for kind in MODULES:
        assert sum(each == kind and not example.refused for (each, _), example in EXAMPLES.items()) >= 15
