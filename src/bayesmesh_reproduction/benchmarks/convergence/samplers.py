"""The contenders by name: ours with the metrics and kernels that suit sixteen chains, and other packages' samplers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bayesmesh.config.loading import experiment_file, load_experiment
from bayesmesh_reproduction.benchmarks.convergence.runs import LOOKS
from bayesmesh_reproduction.benchmarks.harness import Options
from bayesmesh_reproduction.benchmarks.process import ON_CPU, Contender, on_platforms

NUM_CHAINS, NUM_WARMUP = 16, 400
"""Chains of every contender, and warmup iterations of the others; ours has its default."""

OURS = "ours"
"""Our sampler as it is without any setting."""

SHORT = 200
"""Warmup iterations that suffice where sixteen chains adapt together; the others that do so have it as well."""

_SHORT = {"settings": {"sampling": {"warmup": SHORT}}}

VARIANTS: dict[str, dict[str, Any]] = {
    OURS: {"kernel": "nuts"},
    **{
        f"ours: {words}, dense, {SHORT} warmup": {"kernel": kernel, "options": {"metric": "dense"}, **_SHORT}
        for kernel, words in (("nuts", "NUTS"), ("chees", "ChEES"), ("mams", "MAMS"))
    },
}
"""Name -> arguments of `our_samplers.Ours`."""

OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "published HMC": ("TfpHmc", {}),
    "TFP NUTS": ("TfpNuts", {}),
    "NumPyro NUTS": ("NumpyroNuts", {}),
    "NumPyro NUTS, dense": ("NumpyroNuts", {"dense": True}),
    "BlackJAX NUTS": ("BlackjaxNuts", {}),
    "BlackJAX ChEES": ("BlackjaxChees", {"metric": "diagonal"}),
    f"BlackJAX ChEES, {SHORT} warmup": ("BlackjaxChees", {"metric": "diagonal", "warmup": SHORT}),
    "BlackJAX microcanonical": ("BlackjaxMicrocanonical", {}),
    "nutpie, low rank": ("Nutpie", {}),
}
"""Name -> class in `other_samplers` and its options."""


SMALL_ONLY = ("NumPyro NUTS, dense", "nutpie, low rank")
"""Others that take no posterior of thousands of coordinates and millions of cells: a dense metric for each chain, and a density
that Python calls in float64."""


def is_ours(name: str) -> bool:
    """Return whether a contender belongs to this project."""
    return name.startswith(OURS)


def list_contenders(options: Options, peers: str | None, experiment: str = "") -> list[Contender]:
    """Return ours and, if their environment exists, the others, in the order of their turns; all on the CPU.

    Args:
        options: of the benchmark.
        peers: Python of the other packages.
        experiment: the experiment of a target: ours is as configured there, and the others have its chains and draws.
    """
    folder = __name__.rpartition(".")[0]
    common = {
        "chains": options.pick(NUM_CHAINS, quick=4), "limit_s": options.seconds_limit,
        "budget": options.pick(1000, quick=125),
    }  # fmt: skip
    variants, other = VARIANTS, OTHERS
    if experiment:
        path = experiment_file(Path("config"), experiment)
        sampling = load_experiment(path).sampling
        common |= {"chains": sampling.chains, "budget": max(n for n in LOOKS if n <= sampling.draws)}
        variants = {f"{OURS}, as in {path.name}": {"kernel": "", "experiment": str(path)}}
        other = {name: OTHERS[name] for name in OTHERS if name not in SMALL_ONLY}
    ours = [Contender(name, f"{folder}.our_samplers:Ours", {**more, **common}) for name, more in variants.items()]
    others = []
    if peers is not None:
        works = {name: (f"{folder}.other_samplers:{cls}", {**more, **common}) for name, (cls, more) in other.items()}
        others = [Contender(name, work, {"warmup": NUM_WARMUP, **o}, peers) for name, (work, o) in works.items()]
    found = [*ours, *others]
    return on_platforms(options.pick(found, quick=[*ours[:1], *others[4:5]]), ON_CPU)
