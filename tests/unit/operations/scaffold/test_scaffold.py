"""What `bayesmesh new` and `bayesmesh init` write runs as it stands, and they overwrite nothing."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bayesmesh import __version__
from bayesmesh.cli import main
from bayesmesh.config.loading import load_configuration, load_experiment
from bayesmesh.errors import ConfigError
from bayesmesh.operations.scaffold import KINDS, write_new, write_project
from bayesmesh.workflow import PROFILES

ROOT = Path(__file__).resolve().parents[4]

NAMES = {
    # The longest name; one of which the class sorts before the others; one that holds a name of the template.
    "model": ["a" * 32, "op_t", "x_new_model", "json"],
    "source": ["source", "np1"],
    "kernel": ["z", "langevin"],
    "metric": ["spread"],
    "analysis": ["drift"],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folders of a project."""
    for folder in ("models", "kernels/hamiltonian/metrics", "data/sources", "analyses"):
        (tmp_path / "src" / "bayesmesh" / folder).mkdir(parents=True)
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("kind", "paths"),
    [
        ("model", ["src/bayesmesh/models/mine.py", "tests/unit/models/test_mine.py"]),
        ("source", ["src/bayesmesh/data/sources/mine.py", "tests/unit/data/sources/test_mine.py"]),
        ("kernel", ["src/bayesmesh/kernels/mine.py", "tests/unit/kernels/test_mine.py"]),
        (
            "metric",
            [
                "src/bayesmesh/kernels/hamiltonian/metrics/mine.py",
                "tests/unit/kernels/hamiltonian/metrics/test_mine.py",
            ],
        ),
        ("analysis", ["src/bayesmesh/analyses/mine.py", "tests/unit/analyses/test_mine.py"]),
        ("experiment", ["config/experiments/mine.yaml"]),
    ],
)
def test_a_component_is_one_file_and_one_test(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, paths: list[str]
) -> None:
    monkeypatch.chdir(project)
    assert main(["new", kind, "mine"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[: len(paths)] == [f"{path}: written" for path in paths]
    assert ("make schema" in "".join(said)) == (kind != "experiment")
    written = contents(project)
    assert sorted(written) == sorted(paths)
    for text in written.values():
        assert b"scaffold" not in text
        assert not re.search(rb"new[_ ]?(model|source|kernel|metric|analysis|experiment)", text, re.IGNORECASE)


@pytest.mark.parametrize("name", ["mine", "a-b_c", "123", "true", "null", "1e3", "x" * 64])
def test_a_new_experiment_loads(project: Path, name: str) -> None:
    (path,) = write_new("experiment", name, project)
    assert load_experiment(project / path).title


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["", "Upper", "with space", "../outside", "/etc/passwd", "a/b", "a.b", "_private", "__init__", "a;b", "$(x)", "ä",
     "a\nb", "mine\n", "-x", "x" * 65],
)  # fmt: skip
def test_a_bad_name_is_refused_and_nothing_is_written(project: Path, kind: str, name: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a valid name for an? ") as caught:
        write_new(kind, name, project)
    assert contents(project) == {}
    good = caught.value.remedy.rpartition(" ")[2]
    assert write_new(kind, good, project), "the name that is proposed can be used"


@pytest.mark.parametrize("kind", ["model", "source", "kernel", "analysis"])
def test_in_a_project_of_ones_own_it_goes_into_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    # A name of its own, because namespaces are remembered.
    package = f"my_study_of_{kind}"
    root = tmp_path / package.replace("_", "-")
    (root / package).mkdir(parents=True)
    monkeypatch.chdir(root)
    assert main(["new", kind, "mine"]) == 0
    said = capsys.readouterr().out
    folder = {"analysis": "analyses"}.get(kind, f"{kind}s")
    assert f"bayesmesh check {package}.{folder}.mine:Mine{kind.capitalize()}" in said
    assert sorted(contents(root)) == [f"{package}/{folder}/mine.py", "tests/test_mine.py"]
    monkeypatch.syspath_prepend(root)
    test = runpy.run_path(str(root / "tests" / "test_mine.py"))
    assert any(name.startswith("test_") for name in test)
    if kind == "analysis":
        test["test_moments_are_those_of_the_draws"](tmp_path)


# -- what was written, run -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with new components in it, written by the command."""
    folder = tmp_path_factory.mktemp("scaffolded")
    # With compiled modules, which are valid where the times of their sources are copied too.
    for name in ("src", "config", "tests/contract", "tests/support"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    for kind, names in NAMES.items():
        for name in names[1:]:
            write_new(kind, name, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert [main(["new", kind, names[0]]) for kind, names in NAMES.items()] == [0] * len(NAMES)
    return folder


def run_in(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def written(folder: Path) -> list[str]:
    """Sources and tests that are in the copy and not in the project."""
    found = [p.relative_to(folder) for part in ("src", "tests") for p in (folder / part).rglob("*.py")]
    return sorted(str(p) for p in found if not (ROOT / p).exists())


def test_new_files_are_in_style_and_typed(tree: Path) -> None:
    files = written(tree)
    assert len(files) == 2 * sum(map(len, NAMES.values()))
    run_in(tree, "-m", "ruff", "check", *files)
    run_in(tree, "-m", "ruff", "format", "--check", *files)
    # The cache of `make check`, which has read all other modules.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bayesmesh" / "mypy"
    run_in(tree, "-m", "mypy", "--cache-dir", str(cache), *(f for f in files if f.startswith("src/")))


def test_new_components_pass_their_tests_and_contracts(tree: Path) -> None:
    tests = [f for f in written(tree) if f.startswith("tests/")]
    # A kernel of this kind keeps its contract in the tests of the guide.
    chosen = {kind: names[-1] for kind, names in NAMES.items() if kind != "kernel"}
    contracts = [f"tests/contract/test_{'analyses' if kind == 'analysis' else f'{kind}s'}.py" for kind in chosen]
    # In one process, which starts and compiles what all need once; everything in the folder `unit` is new.
    which = " or ".join(["unit", *chosen.values()])
    said = run_in(tree, "-m", "pytest", "-q", "-rp", "-p", "no:xdist", "-k", which, *tests, *contracts)
    passed = re.findall(r"^PASSED (\S+)", said, re.MULTILINE)
    own = [name for name in passed if not name.startswith("tests/contract/")]
    assert {name.partition("::")[0] for name in own} == set(tests)
    assert len(passed) - len(own) > 20


def test_a_project_names_its_own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "my-study"]) == 0
    root = tmp_path / "my-study"
    monkeypatch.chdir(root)
    assert load_configuration(Path("config")).experiments["growth"].model.name == "my_study.models.growth:Growth"
    assert f"bayesmesh=={__version__}\n" in (root / "requirements.txt").read_text()
    assert len((root / "Snakefile").read_text().splitlines()) == 3
    texts = [path.read_text() for path in root.rglob("*") if path.is_file()]
    assert not [text for text in texts if "new_project" in text or "New project" in text]
    for path in filter(Path.is_file, PROFILES.rglob("*")):
        copy = root / "profiles" / path.relative_to(PROFILES)
        assert copy.read_bytes() == path.read_bytes()
        assert os.access(copy, os.X_OK) == (path.suffix == ".sh")


@pytest.mark.parametrize(
    "name",
    ["Study", "a b", "1st", "class", "a.b", "$(x)", "-x", "x" * 65, "numpy", "bayesmesh", "json", "data", "a\nb"],
)
def test_a_bad_name_of_a_project_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write_project(tmp_path / name)
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []
