"""Write a new project: configuration, a model, a table, a Snakefile, tests and profiles."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
import sys
from pathlib import Path

from bayesmesh import __version__
from bayesmesh.config.loading import refuse_folder
from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.errors import ConfigError
from bayesmesh.workflow import PROFILES

_TEMPLATES = Path(__file__).parent / "templates" / "project"

_FILES = {
    "README.md": "README.md",
    "Snakefile": "Snakefile",
    "gitignore.txt": ".gitignore",
    "requirements.txt": "requirements.txt",
    "config.yaml": "config/config.yaml",
    "growth.yaml": "config/experiments/growth.yaml",
    "trees.csv": "data/trees.csv",
    "growth.py": "new_project/models/growth.py",
    "contracts.txt": "tests/test_contracts.py",
}
"""Template -> file of the project, in which `new_project` is the name of its package."""

_FOLDERS = frozenset({"config", "data", "profiles", "results", "tests", "workflow"})


def write_project(folder: Path) -> list[Path]:
    """Write the files of a project and return their paths, relative to its folder.

    Args:
        folder: folder of the project, which may exist; its name is that of the project.

    Raises:
        ConfigError: the name is invalid, or a file exists already; nothing was written.
    """
    folder = folder.absolute()
    refuse_folder(folder)
    package = _package_name(folder.name)
    files = _contents(folder.name, package)
    # Also the folder of the package, in which there may be other modules.
    for path in (*files, Path(package)):
        if (folder / path).exists() or (folder / path).is_symlink():
            raise ConfigError(f"{folder / path}: exists already", "choose another folder; nothing was written")
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        # Mode x, in case the file was created since the check.
        with (folder / path).open("xb") as handle:
            handle.write(content)
        if path.suffix == ".sh":
            (folder / path).chmod(0o755)
    return list(files)


def run(arguments: argparse.Namespace) -> int:
    """Write the project and print its files and the next steps; return the exit code."""
    for path in write_project(arguments.folder):
        print(f"{arguments.folder / path}: written")
    print(f"next: cd {arguments.folder} && snakemake\nThe example takes a minute; its README.md says how to go on.")
    return 0


def _package_name(name: str) -> str:
    """Return the name of a project's package, or refuse that of the project."""
    package = name.replace("-", "_")
    example = "for example my-study"
    if not re.fullmatch(NAME_PATTERN.strip("^$"), name) or not package.isidentifier() or keyword.iskeyword(package):
        raise ConfigError(
            f"{name!r:.80} is not a valid name for a project",
            f"names match {NAME_PATTERN}, begin with a letter and are not words of Python, {example}",
        )
    if package in _FOLDERS or package in sys.stdlib_module_names or _is_installed(package):
        raise ConfigError(f"'{name}': the package {package} would hide a module or a folder of that name", example)
    return package


def _is_installed(package: str) -> bool:
    found = importlib.util.find_spec(package)
    # A folder without __init__.py, such as the new one, has no origin.
    return found is not None and found.origin is not None


def _contents(name: str, package: str) -> dict[Path, bytes]:
    """Return path -> content of all files."""
    spoken = re.sub(r"[_-]+", " ", name).strip().capitalize()
    words = {"new_project": package, "New project": spoken, "bayesmesh==VERSION": f"bayesmesh=={__version__}"}
    pattern = re.compile("|".join(map(re.escape, words)))
    found = {}
    for template, path in _FILES.items():
        text = pattern.sub(lambda match: words[match[0]], (_TEMPLATES / template).read_text(encoding="utf-8"))
        found[Path(path.replace("new_project", package))] = text.encode()
    profiles = sorted(path for path in PROFILES.rglob("*") if path.is_file())
    return {**found, **{Path("profiles", path.relative_to(PROFILES)): path.read_bytes() for path in profiles}}
