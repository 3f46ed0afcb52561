"""Read `config/reproduction.yaml`: the published experiments, and the sizes and limits of benchmarks."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from bayesmesh.config.errors import validate
from bayesmesh.config.settings import Name, Settings
from bayesmesh.config.yaml_reader import read_yaml


class BenchmarkSettings(Settings):
    """Sizes and limits of all benchmarks."""

    quick: bool = False
    """Use small sizes: each benchmark takes under a minute, but supports no claims."""
    seconds_limit: float = Field(20.0, gt=0, le=1e6)
    """Time limit for one run of one contender, in seconds, or a multiple where runs are long; tables mark contenders that reached it."""


class ReproductionSettings(Settings):
    """`config/reproduction.yaml`."""

    experiments: list[Name] = Field([])
    """Published experiments, run by the target `reproduce`."""
    accelerated: list[Name] = Field([])
    """Further experiments that `reproduce` runs if `sample` has a GPU or a TPU: those with the published budgets."""
    benchmarks: BenchmarkSettings = Field(BenchmarkSettings())
    """Settings of the target `benchmarks`."""


def load_settings(config: Path) -> ReproductionSettings:
    """Return the settings of a configuration; without the file, the defaults.

    Raises:
        ConfigError: see `read_yaml`; or a key is unknown or invalid.
    """
    path = config / "reproduction.yaml"
    if not path.exists():
        return ReproductionSettings()
    return validate(path, ReproductionSettings, read_yaml(path))
