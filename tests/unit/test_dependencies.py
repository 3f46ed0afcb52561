"""Declared dependencies are those that are imported, each where it is needed."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

DISTRIBUTIONS = {
    "PIL": "pillow", "google": "protobuf", "sklearn": "scikit-learn", "tensorflow_probability": "tfp-nightly",
    "yaml": "pyyaml",
}  # fmt: skip
"""Import name -> distribution, where they differ."""

NOT_IMPORTED = {
    "snakemake-executor-plugin-slurm": "submits jobs",
    "pygments": "snakemake --report",
    "importlib-resources": "tensorflow-datasets",
    "arviz": "reads the posterior, as the guide does",
}
"""Dependency that the source does not import -> what needs it."""

TOOLS = {
    "axe-core-python",  # a file of it is read
    "import-linter",
    "mypy",
    "pandas-stubs",
    "pytest-xdist",
    "ruff",
    "snakefmt",
    "types-pyyaml",
    "types-requests",
    "snakedeploy",
    "snakemake-executor-plugin-cluster-generic",
    "beartype",
}
"""Of the extra dev: run, or read by mypy, and imported nowhere."""

PYMC, NUMPYRO = {"bayesmesh/models/pymc"}, {"bayesmesh/models/numpyro"}
PEERS = {f"bayesmesh_reproduction/benchmarks/{name}" for name in ("convergence", "hidden_markov")}
"""Folders that need the extras pymc and numpyro, and those whose contenders run in the environment of ``envs/peers.in``."""


def _imported(files: Iterable[Path]) -> set[str]:
    """Distributions that files import anywhere, also inside functions."""
    names = {name for file in files for name in _top_level_names(file)}
    foreign = names - sys.stdlib_module_names - {"bayesmesh", "bayesmesh_reproduction"}
    return {canonicalize_name(DISTRIBUTIONS.get(name, name)) for name in foreign}


@functools.cache
def _top_level_names(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _names(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements} - {"bayesmesh"}


def _source(folders: set[str]) -> tuple[list[Path], list[Path]]:
    """Files of both packages in some folders, and all others."""
    inside = [file for file in SOURCE.rglob("*.py") if file.parent.relative_to(SOURCE).as_posix() in folders]
    return inside, [file for file in SOURCE.rglob("*.py") if file not in inside]


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DECLARED, EXTRAS = _names(PROJECT["dependencies"]), PROJECT["optional-dependencies"]


def test_all_that_the_package_imports_is_declared_and_nothing_else() -> None:
    _, rest = _source(PYMC | NUMPYRO | PEERS)
    assert _imported(rest) == DECLARED - NOT_IMPORTED.keys()
    assert NOT_IMPORTED.keys() <= DECLARED


def test_each_bridge_imports_its_extra() -> None:
    for folders, extra in ((PYMC, "pymc"), (NUMPYRO, "numpyro")):
        inside, _ = _source(folders)
        assert _imported(inside) - DECLARED == _names(EXTRAS[extra])


def test_contenders_import_what_their_environment_holds() -> None:
    lines = (ROOT / "envs" / "peers.in").read_text().splitlines()
    held = _names(line for line in lines if not line.startswith("#"))
    inside, _ = _source(PEERS)
    assert _imported(inside) - DECLARED - {"pytensor"} <= held
    assert held - DECLARED <= _imported(inside), "PyMC brings pytensor"


def test_contenders_can_read_the_sources_of_their_targets() -> None:
    text = (SOURCE / "bayesmesh_reproduction/benchmarks/convergence/targets.py").read_text()
    sources = [
        SOURCE / "bayesmesh/data/sources" / f"{name}.py" for name in re.findall(r'_from_source\("(\w+)"\)', text)
    ]
    assert len(sources) == 2
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "envs" / "peers.txt").read_text(), re.MULTILINE)
    assert _imported(sources) <= {canonicalize_name(name) for name in pinned}


def test_the_tests_import_what_the_extra_dev_declares() -> None:
    found = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    # These run in the environment of the peers.
    of_peers = {"make_reference.py", "others.py"}
    files = [path for path in found if path.name not in of_peers]
    # Scripts of tests/posteriors run in their folder, and import each other by name.
    folders = (ROOT / "tests", *(ROOT / "tests" / name for name in ("posteriors", "support")), ROOT / "tools")
    own = {canonicalize_name(path.stem) for folder in folders for path in folder.iterdir()}
    dev = _names(EXTRAS["dev"])
    assert _imported(files) - own - DECLARED - _names(EXTRAS["pymc"]) - _names(EXTRAS["numpyro"]) == dev - TOOLS
    assert dev >= TOOLS
