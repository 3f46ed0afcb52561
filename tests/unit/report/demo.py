"""Writes small, complete and plausible result folders, for the tests and to look at.

    python tests/unit/report/demo.py FOLDER

writes three experiments with their pages and the index.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bayesmesh.analyses.averaging.scores import Entropies, entropy, write_cases
from bayesmesh.config.blocks import GateSettings, ReportSettings
from bayesmesh.diagnostics.diagnosis import diagnose
from bayesmesh.report.index import write_index
from bayesmesh.report.page import write_page
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.components import requested_analyses

CHAINS, DRAWS, WARMUP = 4, 600, 200

ASKED: dict[str, Any] = {"averaging": {}, "recommendation": {}}

IDENTITY = "5f1c0a9e7b42"

FILMS = [
    ("Schindler's List (1993)", "Drama|War"),
    ("Shawshank Redemption, The (1994)", "Drama"),
    ("Raiders of the Lost Ark (1981)", "Action|Adventure"),
    ("Toy Story (1995)", "Animation|Children's|Comedy"),
    ("Usual Suspects, The (1995)", "Crime|Thriller"),
    ("Matrix, The (1999)", "Action|Sci-Fi|Thriller"),
    ("Fargo (1996)", "Crime|Drama|Thriller"),
    ("Dr. Strangelove or: How I Learned to Stop Worrying and Love the Bomb (1963)", "Sci-Fi|War"),
    ("Being John Malkovich (1999)", "Comedy"),
    ("Princess Bride, The (1987)", "Adventure|Comedy|Romance"),
    ("Psycho (1960)", "Horror|Thriller"),
    ("Alien (1979)", "Action|Horror|Sci-Fi|Thriller"),
]


def autoregressive(rng: np.random.Generator, shape: tuple[int, ...], rho: float) -> np.ndarray:
    """Return stationary draws (chain, draw, ...) with unit variance and autocorrelation `rho`."""
    noise = rng.normal(size=shape)
    draws = np.empty(shape)
    draws[:, 0] = noise[:, 0]
    for t in range(1, shape[1]):
        draws[:, t] = rho * draws[:, t - 1] + np.sqrt(1 - rho**2) * noise[:, t]
    return draws


def write_posterior(
    layout: ExperimentLayout, *, chains: int = CHAINS, draws: int = DRAWS, is_stuck: bool = False
) -> None:
    """Write ``posterior.zarr``; with `is_stuck` one chain sits in a place of its own."""
    rng = np.random.default_rng(20261121)
    logits = autoregressive(rng, (chains, draws, 4, 3), 0.35)
    biases = autoregressive(rng, (chains, draws, 3), 0.5)
    lp = -4231.0 - 0.5 * rng.chisquare(30, (chains, draws))
    diverging = np.zeros((chains, draws), bool)
    if is_stuck:
        logits[-1, :, 2, 1] += np.linspace(3.2, 2.2, draws)
        biases[-1] = 0.15 * biases[-1] + 1.9
        lp[-1] -= 40
        diverging[-1, ::97] = True
    root = open_group(layout.posterior, "w")
    root.attrs.update(
        identity=IDENTITY,
        groups=[f"chains/{IDENTITY}/group-{k:03d}" for k in range(4)],
        versions=json.dumps(
            {"jax": "0.11.0", "jaxlib": "0.11.0", "tfp": "0.26.0", "bayesmesh": "0.1.0", "python": "3.12.1"}
        ),
        device="NVIDIA H200",
        model="softmax_regression",
        kernel="chees",
    )
    groups = {
        "summaries": {"logits": logits, "biases": biases, "log_density": lp},
        "posterior": {"weights": autoregressive(rng, (chains, draws, 8, 3), 0.6), "biases": biases},
        "sample_stats": {
            "lp": lp,
            "energy": -lp + 0.5 * rng.chisquare(30, (chains, draws)),
            "acceptance_rate": rng.beta(8, 2, (chains, draws)),
            "diverging": diverging,
            "n_steps": np.full((chains, draws), 12),
            "step_size": np.full((chains, draws), 0.021),
            "bounces": np.tile([[0.5], *[[1.5]] * (chains - 1)], (1, draws)),
        },
        "warmup_sample_stats": {
            "lp": -4246 - 3000 * np.exp(-np.arange(WARMUP) / 9.0) - 0.5 * rng.chisquare(30, (chains, WARMUP)),
            "acceptance_rate": rng.beta(6, 3, (chains, WARMUP)),
            "step_size": np.tile(
                0.021 * np.exp(np.cumsum(rng.normal(0, 1, WARMUP)) / (1 + np.arange(WARMUP))), (chains, 1)
            ),
        },
    }
    for group_name, arrays in groups.items():
        group = root.create_group(group_name)
        for name, values in arrays.items():
            kept = values if values.dtype == bool else values.astype(np.float32)
            write_array(group, name, kept, ("chain", "draw", *(f"dim_{k}" for k in range(values.ndim - 2))))
    declared = {"bounces": ("1/step", "Reflections at x<0."), "step_size": ("metric", "Step size.")}
    for name, (unit, description) in declared.items():
        root[f"sample_stats/{name}"].attrs.update(units=unit, description=description)
    # All that are there: gates judge by no other.
    root["sample_stats"].attrs["statistics"] = sorted(name for name, _ in root["sample_stats"].arrays())


def write_csv(path: Path, header: str, rows: list[tuple[Any, ...]]) -> None:
    """Write a CSV file; cells with commas are quoted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    quoted = [",".join(f'"{cell}"' if "," in str(cell) else str(cell) for cell in row) for row in rows]
    path.write_text("\n".join([header, *quoted]) + "\n", encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def write_averaging(layout: ExperimentLayout) -> None:
    """Write scores that gain by averaging, and predictions."""
    rows = []
    for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2400):
        gain = 1 - 1 / n**0.6
        rows.append((
            n, 0.91885, 0.91885 + 0.00755 * gain, -0.31, -0.31 + 0.045 * gain, 0.121, 0.121 - 0.012 * gain, 0.018,
            0.018 + 0.009 * gain, "" if n == 1 else 0.0021, 0.0011 * gain, 0.002 * gain, 0.0009 * gain, 0.0012 * gain,
            0.0026, 0.009, 0.0031, 0.0024,
        ))  # fmt: skip
    names = ("accuracy", "log_score", "brier", "ece")
    header = ",".join(
        [
            "num_draws",
            *(f"{kind}_{name}" for name in names for kind in ("single", "average")),
            "single_accuracy_sd",
            *(f"gain_{name}_se" for name in names),
            *(f"average_{name}_se" for name in names),
        ]
    )
    folder = layout.folder / "averaging"
    write_csv(folder / "scores.csv", header, rows)
    rng = np.random.default_rng(7)
    probabilities = rng.dirichlet(np.full(10, 0.09), 2000)
    label = np.array([rng.choice(10, p=p) for p in probabilities])
    group = open_group(folder / "predictions.zarr", "w")
    write_array(group, "probabilities", probabilities.astype(np.float32), ("row", "class"))
    write_array(group, "label", label, ("row",))
    entropies = Entropies(entropy(probabilities), 0.8 * entropy(probabilities))
    rows = {"features": rng.integers(0, 255, (2000, 64), np.uint8)}
    write_cases(group, entropies, rows, (8, 8), ())


def write_recommendations(layout: ExperimentLayout, first_title: str = FILMS[0][0]) -> None:
    """Write a concentrated list, a dispersed list and a chosen user's list."""
    titles = [(first_title, FILMS[0][1]), *FILMS[1:]]
    top, genres, users = [], [], []
    for user, user_id, activity, decay in (
        (4168, 4169, "most", 0.9),
        (4635, 4636, "least", 0.16),
        (0, 1, "chosen", 0.4),
    ):
        weights = np.exp(-decay * np.arange(len(titles)))
        p_best = 0.92 * weights / weights.sum() if decay > 0.2 else 0.3 * weights / weights.sum()
        for rank, ((title, kinds), p) in enumerate(zip(titles, p_best, strict=True), 1):
            top.append((user, user_id, activity, rank, rank, title, kinds, p, min(1, 3 * p), 0.9 - 0.02 * rank, 0.03))
        for position, genre in enumerate(
            ("Drama", "Action", "Thriller", "Comedy", "Crime", "Animation", "Sci-Fi", "War")
        ):
            genres.append((user, activity, genre, 0.6 * np.exp(-decay * position)))
        users.append(
            (
                user,
                user_id,
                activity,
                {"most": 2314, "least": 20}.get(activity, 53),
                4 - 3 * decay,
                0.05,
                3 * (0.9 - decay),
                0.07 if decay < 0.9 else 0.0,
                5.1,
                212,
                1000,
            )
        )
    folder = layout.folder / "recommendations"
    write_csv(
        folder / "top.csv",
        "user,user_id,activity,rank,film_id,title,genres,p_best,p_top,mean_probability,sd_probability",
        top,
    )
    write_csv(folder / "genres.csv", "user,activity,genre,p_best", genres)
    write_csv(
        folder / "users.csv",
        "user,user_id,activity,num_watched,entropy,entropy_sd,entropy_minus_first,entropy_minus_first_sd,entropy_top,num_films_ever_best,num_draws",
        users,
    )
    columns = "ranking,cutoff,recall,recall_se,ndcg,ndcg_se,ndcg_ratio_se,num_users,average_precision,average_precision_se,novelty,coverage"
    write_csv(folder / "scores.csv", columns, [
        ("posterior_average", 10, 0.1931, 0.0021, 0.2874, 0.0028, 0.03, 6040, 0.1712, 0.002, 3.1, 0.21),
        ("single_draw", 10, 0.1702, 0.002, 0.2512, 0.0026, 0.03, 6040, 0.1431, 0.0019, 3.3, 0.24),
        ("popularity", 10, 0.0982, 0.0016, 0.1533, 0.0022, 0.0, 6040, 0.0812, 0.0015, 1.9, 0.03),
        ("random", 10, 0.0027, "", 0.0041, "", 0.0004, 6040, 0.0012, "", 7.2, ""),
    ])  # fmt: skip
    write_csv(folder / "differences.csv", "ranking,score,difference,low,high", [])
    write_csv(folder / "activity.csv", "ranking,group,films_from,films_to,num_users,recall,recall_se,ndcg,ndcg_se", [])
    write_csv(folder / "calibration.csv", "low,high,num_cells,predicted,watched,difference_se", [])
    columns = (
        "num_users,num_draws,acceptance,probability,counts_covered,counts_covered_se,logits_covered,logits_covered_se"
    )
    write_csv(folder / "new_users.csv", columns, [])


def write_ledger_parts(layout: ExperimentLayout) -> None:
    """Write the ledgers of a compile job, four sample jobs and an assemble job."""
    jobs: dict[str, list[tuple[str, float, str, float | None]]] = {
        "compile": [("trace", 0.61, "", None), ("lower", 0.34, "", None), ("compile", 9.8, "cold", None)],
        **{
            f"sample-group-{k:03d}": [
                ("transfer", 0.4, "", None), ("compile", 0.7, "warm", None), ("init", 0.3, "", None),
                ("warmup", 31.0 + 3 * k, "", 40000), ("sample", 58.0 + k, "", 60000), ("write", 1.9, "", None),
            ]
            for k in range(4)
        },
        "assemble": [("read", 1.1, "", None), ("write", 2.2, "", None)],
    }  # fmt: skip
    for job, phases in jobs.items():
        ledger = Ledger(layout.ledger_part(job), job)
        ledger.device, ledger.identity = "NVIDIA H200", IDENTITY if job.startswith("sample") else ""
        for phase, seconds, detail, gradients in phases:
            num_bytes = 188_160_000 if phase in ("transfer", "write") else 0
            ledger.add(phase, seconds, detail=detail, gradients=gradients or 0, num_bytes=num_bytes)
        ledger.finish()
        ledger.save()


def write_everything(layout: ExperimentLayout, *, is_stuck: bool = False, chains: int = CHAINS) -> Path:
    """Write all that a page can show, and return the path of the data manifest."""
    write_posterior(layout, is_stuck=is_stuck, chains=chains)
    diagnose(layout.posterior, GateSettings(), layout)
    write_ledger_parts(layout)
    memory = {
        "arguments": 188_160_000, "outputs": 31_400_000, "temporaries": 41_900_000, "code": 180_224, "peak": 261_460_000
    }  # fmt: skip
    program = {"lower_seconds": 0.34, "compile_seconds": 9.8, "cache": "cold", "memory": memory}
    audit = {
        "equations": {"by_rows": {"30000": 412, "60000": 412}, "grow_with_data": False},
        "gradient": {"flops": 1.88e9, "bytes": 94_720_000.0, "seconds": 0.00051, "chains": 4},
        "rows": {"padded": 60000, "tile": 60000, "tiles": 1},
        "devices": {"kind": "NVIDIA H200", "count": 1},
        "segment_draws": 100,
        "programs": {"warmup": program, "run": program},
    }
    write_json(layout.audit, audit)
    write_json(layout.spec("sample"), {"stage": "sample", "config": {"kernel": {"name": "chees"}}})
    manifest = layout.results / "data" / "digits" / "sharded.json"
    write_json(manifest, {"counts": {"train": 60000, "test": 10000}, "fingerprint": "sha256:9d1f" + "0" * 60,
                          "source": "mnist", "origin": "mirror"})  # fmt: skip
    return manifest


def write_demo_page(layout: ExperimentLayout, manifest: Path | None, title: str, caption: str) -> Path:
    """Write the page of a demo experiment."""
    config = {"title": title, "model": {"name": "softmax_regression"}, "sampling": {"chains": CHAINS, "draws": DRAWS},
              **ASKED}  # fmt: skip
    settings, asked = ReportSettings(caption=caption), requested_analyses(ASKED, Path("mnist.yaml"))
    return write_page(layout, config, title, caption, manifest, settings, analyses=asked)


def write_demo(results: Path) -> list[Path]:
    """Write three experiments, their pages and the index; return the paths of all pages."""
    cases = {
        "mnist": ("MNIST, Bayesian softmax regression", "All 60,000 rows enter every gradient. Weights and biases have standard normal priors.", False, CHAINS),
        "movielens": ("MovieLens-1M, matrix factorisation", "Every one of the 22.4 million cells of the watch matrix is a Bernoulli outcome.", False, 24),
        "stuck": ("A run whose last chain is stuck", "What the page of a failed run looks like.", True, CHAINS),
    }  # fmt: skip
    pages = []
    for name, (title, caption, is_stuck, chains) in cases.items():
        layout = ExperimentLayout(results, name)
        manifest = write_everything(layout, is_stuck=is_stuck, chains=chains)
        (write_recommendations if name == "movielens" else write_averaging)(layout)
        pages.append(write_demo_page(layout, manifest, title, caption))
    asked = requested_analyses(ASKED, Path("mnist.yaml"))
    listed = [{"experiment": name, "title": case[0], "analyses": asked} for name, case in cases.items()]
    return [
        *pages,
        write_index(results, [*listed, {"experiment": "later", "title": "An experiment that is still running"}]),
    ]


if __name__ == "__main__":
    sys.stdout.write("\n".join(map(str, write_demo(Path(sys.argv[1])))) + "\n")
