"""The contenders by name: ours with the metrics and kernels that suit sixteen chains, and other packages' samplers."""

from __future__ import annotations

from typing import Any

from bayesmesh.reproduction.benchmarks.benchmark_process import ON_CPU, Contender, on_platforms
from bayesmesh.reproduction.benchmarks.harness import Options

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
"""Name -> arguments of `convergence_our_samplers.Ours`."""

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
"""Name -> class in `convergence_other_samplers` and its options."""


def is_ours(name: str) -> bool:
    """Whether a contender is of this project."""
    return name.startswith(OURS)


def list_contenders(options: Options, peers: str | None) -> list[Contender]:
    """Return ours and, if their environment exists, the others, in the order of their turns; all on the CPU."""
    folder = __name__.rpartition(".")[0]
    common = {
        "chains": options.pick(NUM_CHAINS, quick=4), "limit_s": options.seconds_limit,
        "budget": options.pick(1000, quick=125),
    }  # fmt: skip
    ours = [
        Contender(name, f"{folder}.convergence_our_samplers:Ours", {**more, **common})
        for name, more in VARIANTS.items()
    ]
    others = []
    if peers is not None:
        works = {
            name: (f"{folder}.convergence_other_samplers:{cls}", {**more, **common})
            for name, (cls, more) in OTHERS.items()
        }
        others = [Contender(name, work, {"warmup": NUM_WARMUP, **o}, peers) for name, (work, o) in works.items()]
    found = [*ours, *others]
    return on_platforms(options.pick(found, quick=[*ours[:1], *others[4:5]]), ON_CPU)
