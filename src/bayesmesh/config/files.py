"""Find the files of experiments: one NAME.yaml each."""

from __future__ import annotations

import re
from pathlib import Path

from bayesmesh.config.yaml_reader import EXAMPLE
from bayesmesh.errors import ConfigError


def experiment_file(config: Path, name: str) -> Path:
    """Return the file of an experiment; a member of a sweep shares the sweep's file, whose name is a prefix of its own.

    Args:
        config: the folder with ``experiments/``.
        name: name of the experiment.
    """
    words = name.split("-")
    files = (config / "experiments" / f"{'-'.join(words[:n])}.yaml" for n in range(len(words), 0, -1))
    return next((file for file in files if file.is_file()), config / "experiments" / f"{name}.yaml")


def list_experiment_files(folder: Path) -> tuple[dict[str, Path], dict[str, ConfigError]]:
    """Return name -> file of all experiments, and name -> error of files with a similar ending."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder", f"create it, and write one file per experiment\n{EXAMPLE}")
    files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    paths = {path.stem: path for path in files if path.suffix == ".yaml"}
    misnamed: dict[str, ConfigError] = {}
    for path in files:
        if path.suffix != ".yaml" and re.search(r"\.(ya?ml|json|toml)(\.txt)?$", path.name, re.IGNORECASE):
            name = path.name.partition(".")[0]
            misnamed[path.name if name in paths or name in misnamed else name] = ConfigError(
                f"{path}: an experiment is a file NAME.yaml; this one would be ignored",
                f"rename it to {name}.yaml, or move it out of {folder}",
            )
    return paths, misnamed
