"""Measure the time from the command to the verdict for 30 small models, and NumPyro's whole run of the same models beside it.

`python tools/verdict_times.py [--checkout DIR]... [--peers PYTHON] [NAME ...]` runs each model as `tools/latency.py` does, with
NUTS and defaults: with an empty cache, and with the programs of that run. `PYTHON` is that of `make peers-env`: NumPyro
samples as many chains and draws of the same log density, from its import to its table. Models are those of
`tests/posteriors`, 20 with a reference and 10 with 10,000 rows. A name that begins like several models means all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import latency

TESTS = Path(__file__).resolve().parents[1] / "tests"

SOURCE = '''
"""Rows of a posterior of the tests."""

from pathlib import Path

import numpy as np

from bayesmesh.config.settings import Settings
from bayesmesh.data.base import Dataset, Source


class Options(Settings):
    """No options."""


class Embedded(Source):
    """Rows of a posterior."""

    pretty_name = "Embedded"
    offers = ()
    options: Options

    def read(self, folder: Path) -> Dataset:
        with np.load("rows.npz") as stored:
            rows = dict(stored)
        return Dataset(rows=rows, declared_counts={"rows": len(rows["y"])})
'''

ROWS = """
import numpy as np
from posteriors.{module} import {name}
np.savez("rows.npz", **{name}.rows())
"""

MODEL = '''
"""A posterior of the tests."""

from bayesmesh.config.settings import Settings
from posteriors.{module} import {name}


class Options(Settings):
    """No options."""


class Posterior({name}):
    """The posterior under the name of a component."""

    options: Options
'''

NUMPYRO = """
import json, sys, time
begun = time.perf_counter()
import jax, numpy as np, jax.numpy as jnp
from numpyro.infer import MCMC, NUTS
imported = time.perf_counter()
# A model of NumPyro would not import these.
from posteriors.{module} import {name}
case = {name}.case("float32")
of_model = time.perf_counter() - imported
model, rows, prior = case.model, {{k: jnp.asarray(v, np.float32 if v.dtype.kind == "f" else v.dtype) for k, v in case.rows.items()}}, None
prior = model.prior(case.spec)
bijector = prior.experimental_default_event_space_bijector()

def potential(z):
    latents = bijector.forward(z)
    return -(prior.log_prob(latents) + bijector.forward_log_det_jacobian(z) + model.log_likelihood(latents, rows).sum())

shapes = jax.eval_shape(lambda: dict(bijector.inverse(prior.sample(seed=jax.random.key(0)))))
random = np.random.default_rng(0)
start = {{k: jnp.asarray(random.uniform(-2, 2, ({chains}, *s.shape)), s.dtype) for k, s in shapes.items()}}
mcmc = MCMC(
    NUTS(potential_fn=potential), num_warmup={warmup}, num_samples={draws}, num_chains={chains}, chain_method="vectorized",
    progress_bar=False,
)
mcmc.run(jax.random.key(1), init_params=start)
mcmc.print_summary()
print(json.dumps(of_model))
"""


def models(names: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield name, module and class of the models, without importing them."""
    folder = TESTS / "posteriors"
    for module in ("regressions", "hierarchies", "series", "shapes", "many_rows"):
        text = (folder / f"{module}.py").read_text()
        for cls, name in re.findall(
            r'^class (\w+)\((?:(?!^class ).)*?^    name = pretty_name = "([^"]+)"', text, re.M | re.S
        ):
            if not names or any(name.startswith(each) for each in names):
                yield name, module, cls


def lay_out(folder: Path, checkout: Path, key: str, module: str, cls: str) -> None:
    """Write a folder as a user has it: a package of theirs with one posterior as a source and a model, and an experiment."""
    latency.copy_package(folder, checkout)
    shutil.copytree(TESTS / "posteriors", folder / "src" / "posteriors")
    shutil.copy(TESTS / "support" / "cases.py", folder / "src")
    latency.write_component(folder / "study/sources/rows.py", SOURCE)
    latency.write_component(folder / "study/models/posterior.py", MODEL.format(module=module, name=cls))
    code = ROWS.format(module=module, name=cls)
    subprocess.run([sys.executable, "-c", code], cwd=folder, env=latency.environment_of(folder), check=True)
    names = {"data": {"source": "study.sources.rows:Embedded"}, "model": {"name": "study.models.posterior:Posterior"}}
    latency.configure(folder, key, {"title": key, **names, "kernel": {"name": "nuts"}})


def measure(checkout: Path, module: str, cls: str) -> list[tuple[float, float, str]]:
    """Return wall and processor seconds to the verdict, and the verdict: with an empty cache, and with its programs."""
    key, found = cls.lower(), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "run")
        lay_out(folder, checkout, key, module, cls)
        for _ in range(2):
            wall, processor = latency.measure(folder, key)["to the verdict"]
            verdict = json.loads((folder / f"results/{key}/diagnostics/verdict.json").read_text())["verdict"]
            found.append((wall, processor, verdict))
            latency.keep_programs(folder)
    return found


def measure_numpyro(python: str, module: str, cls: str) -> tuple[float, float]:
    """Return wall and processor seconds of NumPyro's run of the model, without the imports that only our form of it needs."""
    from bayesmesh.config.blocks import SamplingSettings

    given = SamplingSettings()
    text = NUMPYRO.format(module=module, name=cls, chains=given.chains, warmup=given.warmup, draws=given.draws)
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    site = next(path for path in sys.path if path.endswith("site-packages"))
    folders = (TESTS.parent / "src", TESTS, TESTS / "support", site)
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, folders)), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([python, "-c", text], env=environment, capture_output=True, text=True, check=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    after, of_model = resource.getrusage(resource.RUSAGE_CHILDREN), float(json.loads(done.stdout.splitlines()[-1]))
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun - of_model, used - of_model


def main() -> None:
    """Measure the models in turns, and print a line for each and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--checkout", type=Path, action="append")
    parser.add_argument("--peers", metavar="PYTHON")
    given = parser.parse_args()
    checkouts = [path.resolve() for path in given.checkout or [latency.ROOT]]
    columns = [f"{cache} {i}" for i in range(len(checkouts)) for cache in ("cold", "warm")]
    columns += ["NumPyro"] if given.peers else []
    print("wall/processor seconds to the verdict".ljust(40), *(c.rjust(12) for c in columns), flush=True)
    table: dict[str, list[tuple[float, float]]] = {column: [] for column in columns}
    for name, module, cls in models(given.names):
        found: list[tuple[Any, ...]] = [each for checkout in checkouts for each in measure(checkout, module, cls)]
        found += [measure_numpyro(given.peers, module, cls)] if given.peers else []
        for column, (wall, processor, *_) in zip(columns, found, strict=True):
            table[column].append((wall, processor))
        verdicts = {verdict for _, _, *rest in found for verdict in rest}
        print(name.ljust(40), *(f"{w:.1f}/{p:.1f}".rjust(12) for w, p, *_ in found), *verdicts, flush=True)
    medians = [[statistics.median(values) for values in zip(*cells, strict=True)] for cells in table.values()]
    print("median".ljust(40), *(f"{w:.1f}/{p:.1f}".rjust(12) for w, p in medians))
    if given.peers:
        ratios = [
            statistics.median(a[0] / b[0] for a, b in zip(table[column], table["NumPyro"], strict=True))
            for column in columns[:-1]
        ]
        print("median of wall seconds over NumPyro's".ljust(40), *(f"{ratio:.2f}".rjust(12) for ratio in ratios))


if __name__ == "__main__":
    main()
