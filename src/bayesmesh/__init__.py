"""Bayesmesh: large-scale Bayesian experiments on JAX, run as a Snakemake workflow or called from Python."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from bayesmesh.notebook.calls import compare, effects, open, predict, recommend, sample, verdict

__version__ = "0.1.0"

__all__ = ["compare", "effects", "open", "predict", "recommend", "sample", "verdict"]


def __getattr__(name: str) -> object:
    """Import the functions on first use, because every job of the command line imports this file."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from bayesmesh.notebook import calls

    return getattr(calls, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
