"""Compare one run of 1,000 replicates of eight schools with runs of ten of them, each by itself.

    python tools/measure_replicates.py FOLDER [REPLICATES]

Writes a project to FOLDER, runs Snakemake on two cores, and prints the wall times of the runs and their ratio.
The ten share one start of Snakemake, and their programs are compiled before, which is in favour of separate runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

MODEL = '''
"""Eight schools, whose effects are written as location + scale x standard normal."""

import jax.numpy as jnp
from bayesmesh.config.settings import Settings
from bayesmesh.models.base import Model
from tensorflow_probability.substrates import jax as tfp

tfd = tfp.distributions


class Options(Settings):
    """It has none."""


class Schools(Model):
    pretty_name = "Eight schools"
    offers = ()

    def prior(self, spec):
        zero = jnp.zeros((), spec.dtype)
        return tfd.JointDistributionNamed({
            "mu": tfd.Normal(zero, zero + 5), "tau": tfd.HalfCauchy(zero, zero + 5),
            "z": tfd.Sample(tfd.Normal(zero, zero + 1), 8),
        })

    def _outcome(self, latents, rows):
        return tfd.Normal(latents["mu"] + latents["tau"] * latents["z"][rows["school"]], rows["error"])

    def log_likelihood(self, latents, rows):
        return self._outcome(latents, rows).log_prob(rows["effect"])

    def predict(self, latents, inputs):
        return self._outcome(latents, inputs)

    def outcome(self, rows):
        return rows["effect"]

    def summaries(self, latents, rows):
        return {**latents, "theta": latents["mu"] + latents["tau"] * latents["z"]}
'''

EXPERIMENT = """
title: {title}
data: {{source: table, files: schools.csv, types: {{replicate: integer, school: integer}}, {of}}}
model: {{name: "schools:Schools"}}
kernel: {{name: nuts}}
sampling: {{chains: 4, warmup: 500, draws: 1000}}
"""

ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
NUM_ALONE = 10


def write_project(folder: Path, num_replicates: int) -> None:
    """Write table, model, experiments and Snakefile."""
    generator = np.random.default_rng(0)
    lines = ["replicate,school,error,effect"]
    for replicate in range(num_replicates):
        mu, tau = generator.normal(0, 5), abs(generator.normal(0, 8))
        effects = mu + tau * generator.normal(size=8) + ERRORS * generator.normal(size=8)
        lines += [f"{replicate},{school},{ERRORS[school]},{effect:.4f}" for school, effect in enumerate(effects)]
    experiments = {"together": "replicates: replicate"}
    experiments |= {f"alone-{number}": f"rows: replicate == {number}" for number in range(NUM_ALONE + 1)}
    (folder / "config" / "experiments").mkdir(parents=True)
    (folder / "schools.csv").write_text("\n".join(lines) + "\n")
    (folder / "schools.py").write_text(MODEL)
    (folder / "Snakefile").write_text("from bayesmesh.workflow import SNAKEFILE\ninclude: SNAKEFILE\n")
    (folder / "config" / "config.yaml").write_text("experiments: [together]\n")
    for name, of in experiments.items():
        (folder / "config" / "experiments" / f"{name}.yaml").write_text(EXPERIMENT.format(title=name, of=of))


def run(folder: Path, *targets: str) -> float:
    """Run Snakemake; return wall seconds."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "snakemake", *targets, "--cores", "2", "--quiet", "all"]
    subprocess.run(command, cwd=folder, check=True)
    return time.perf_counter() - start


def main() -> None:
    folder, num_replicates = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    write_project(folder, num_replicates)
    together = run(folder, "together")
    run(folder, f"alone-{NUM_ALONE}")
    alone = run(folder, *(f"alone-{number}" for number in range(NUM_ALONE))) / NUM_ALONE
    print(f"{together:.1f} s together, {alone:.2f} s each alone, ratio {together / (alone * num_replicates):.4f}")


if __name__ == "__main__":
    main()
