"""Components are found by their files, users' by names; misspelt names of a contract are rejected."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.config import registry
from bayesmesh.config.blocks import metric_path
from bayesmesh.config.declarations import read_offers
from bayesmesh.config.loading import load_experiment
from bayesmesh.config.registry import (
    PACKAGES,
    component_files,
    component_path,
    list_components,
    load_component,
    options_class,
    parse_classes,
    resolve_component,
)
from bayesmesh.config.settings import Settings
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.code import named_files
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import dataset_name, make_job

WRONG = [
    ("kernel", "is_ajusted = False", "is_adjusted"),
    ("model", "local_latent = {}", "local_latents"),
    ("source", "offer = ()", "offers"),
    ("analysis", "needs_of_modell = ('averaging',)", "needs_of_model"),
]
METHODS = [
    ("analysis", "def sections(self): ...", "section"),
    ("kernel", "def restarts(self): ...", "restart"),
    ("model", "def descibed(self): ...", "described"),
]


@pytest.mark.parametrize("kind", PACKAGES)
def test_components_are_the_files_of_a_folder(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_ROOT", tmp_path)
    folder = tmp_path / PACKAGES[kind]
    folder.mkdir(parents=True)
    for name in ("newcomer", "another", "base", "options", "_private", "__init__"):
        (folder / f"{name}.py").touch()
    assert list_components(kind) == ["another", "newcomer"]
    with pytest.raises(ConfigError, match=f"unknown {kind} 'newcommer': did you mean 'newcomer'"):
        component_path(kind, "newcommer")


def test_options_are_known_without_jax() -> None:
    """Shared files of Options import no array library, and no component needs JAX for its Options."""
    code = (
        "import importlib, sys\nfrom bayesmesh.config.registry import PACKAGES, list_components, options_class\n"
        "for kind, package in PACKAGES.items():\n"
        '    importlib.import_module(f\'bayesmesh.{package.replace("/", ".")}.options\')\n'
        "if loaded := {'numpy', 'pandas', 'zarr'} & set(sys.modules):\n"
        "    sys.exit(f'a shared options.py imports {loaded}')\n"
        "for kind in PACKAGES:\n"
        "    for name in list_components(kind):\n"
        "        options_class(kind, name)\n"
        "        if {'jax', 'tensorflow_probability'} & set(sys.modules):\n"
        "            sys.exit(f'{kind} {name} imports JAX: move its Options to {PACKAGES[kind]}/options.py')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_component_without_a_class_in_the_shared_file_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from bayesmesh.data.sources import digits, options

    class Own(Settings):
        """Options."""

    monkeypatch.delattr(options, "DigitsOptions")
    monkeypatch.setattr(digits, "Options", Own)
    assert options_class("source", "digits") is Own
    monkeypatch.delattr(digits, "Options", raising=False)
    with pytest.raises(ConfigError, match=r"digits\.py: no class Options\(Settings\)"):
        options_class("source", "digits")


OFFERING = """
class Base:
    offers: tuple[str, ...]

class Mine(Base):
    offers: ClassVar[tuple[str, ...]] = {value}
"""


@pytest.fixture
def offering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, ...] | None]:
    """Return a function that reads the offers of a model whose class says so in a file of the user's own."""
    monkeypatch.chdir(tmp_path)

    def read(value: str, name: str = "offering_file:Mine") -> tuple[str, ...] | None:
        (tmp_path / "offering_file.py").write_text(OFFERING.format(value=value))
        parse_classes.cache_clear()
        return read_offers("model", name)

    return read


def test_offers_are_read_from_the_text_of_the_class(offering: Callable[..., tuple[str, ...] | None]) -> None:
    assert offering("('averaging',)") == ("averaging",)
    assert offering("('recommendation', 'averaging')") == ("recommendation", "averaging")
    assert offering("()") == ()
    assert offering("()", "offering_file:Base") is None, "an annotation alone says nothing"
    assert offering("()", "offering_file:Elsewhere") is None, "a class that is imported there"


def test_a_name_cannot_leave_the_folder() -> None:
    for name in ("../cli", "base", "_movielens_files", "__init__", ""):
        with pytest.raises(ConfigError, match="unknown"):
            component_path("source", name)


EXTERNAL = '''
"""A model of a user's own."""

from pydantic import Field

from bayesmesh.config.settings import Settings, numeric_options
from bayesmesh.models.base import Model


class Options(Settings):
    """Options."""

    scale: float = Field(1.0, gt=0, description="A scale.")


class Mine(Model):
    """A model."""

    pretty_name = "Mine"


EXAMPLE = 3
'''


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").write_text("")
    (tmp_path / "own_package" / "models.py").write_text(EXTERNAL)
    yield tmp_path
    for name in [n for n in sys.modules if n.partition(".")[0] == "own_package"]:
        del sys.modules[name]


def _experiment(good: str, model: str) -> str:
    return good.replace("model: {name: gaussian}", f"model: {model}")


def test_a_model_of_ones_own(own_package: Path, good: str) -> None:
    path = own_package / "own.yaml"
    path.write_text(_experiment(good, "{name: 'own_package.models:Mine', options: {scale: 2.0}}"))
    experiment = load_experiment(path)
    assert experiment.model.options == {"scale": 2.0}  # type: ignore[attr-defined]
    assert "own_package" not in sys.modules, "loading runs nothing"
    assert component_path("model", "own_package.models:Mine") == own_package / "own_package" / "models.py"
    path_before = list(sys.path)
    assert load_component("model", "own_package.models:Mine").pretty_name == "Mine"
    assert sys.path == [*path_before, str(own_package)], "installed modules come first"


SOURCE = """
from bayesmesh.config.settings import Files, Settings
from bayesmesh.data.base import Source


class Options(Settings):
    files: Files = ()
    size: int = 3


class Rows(Source):
    pretty_name = "Rows"
"""

KERNEL = """
from bayesmesh.config.blocks import HamiltonianSettings
from bayesmesh.kernels.hmc import Hmc


class Options(HamiltonianSettings):
    steps: int = 3


class Mine(Hmc):
    min_chains = 3
"""


def test_a_source_and_a_kernel_of_ones_own(own_package: Path, good: str) -> None:
    (own_package / "own_package" / "rows.py").write_text(SOURCE)
    (own_package / "own_package" / "kernels.py").write_text(KERNEL)
    data = "data: {source: 'own_package.rows:Rows', options: {files: x.csv, size: 5}, split_seed: 2}"
    kernel = "kernel: {name: 'own_package.kernels:Mine', options: {metric: dense}}"
    text = re.sub(r"data: \{.*\}", data, re.sub(r"kernel: \{.*\}", kernel, good))
    (own_package / "own.yaml").write_text(text)
    experiment = load_experiment(own_package / "own.yaml")
    fetch, compiled = (make_job(stage, "own", experiment, "results") for stage in ("fetch", "compile"))
    assert fetch.input_files().patterns == {"data.files": ("x.csv",)}
    assert re.fullmatch(r"rows-[0-9a-f]{8}", dataset_name(fetch.config["data"]))
    assert own_package / "own_package" / "rows.py" in named_files(fetch)
    files = named_files(compiled)
    assert own_package / "own_package" / "kernels.py" in files
    assert metric_path("dense") in files
    source_class, options = component_of(fetch, "source")
    assert (source_class.__name__, options.size) == ("Rows", 5)
    assert component_of(compiled, "kernel")[1].steps == 3
    (own_package / "own.yaml").write_text(text.replace("size: 5", "sise: 5").replace("dense", "thick"))
    wrong = load_experiment(own_package / "own.yaml")
    with pytest.raises(ConfigError, match=r"source 'own_package\.rows:Rows': unknown key 'data\.options\.sise'"):
        component_of(make_job("fetch", "own", wrong, "results"), "source")
    with pytest.raises(ConfigError, match=r"own\.yaml: key 'kernel\.options\.metric': unknown metric 'thick'"):
        component_of(make_job("compile", "own", wrong, "results"), "kernel")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("{name: 'own_package.models:Mine', scale: 1}", ["unknown key 'model.scale'", "valid: name, options"]),
        ("{name: 'nowhere.at_all:Mine'}", ["key 'model.name': unknown model 'nowhere.at_all:Mine'", "install"]),
        ("{name: 'a b:c'}", ["key 'model.name': should match pattern"]),
        ("{name: '../x:c'}", ["key 'model.name': should match pattern"]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("own_package")
def test_a_wrong_model_of_ones_own(refused: Callable[..., ConfigError], good: str, model: str, said: list[str]) -> None:
    error = str(refused(_experiment(good, model)))
    for part in said:
        assert part in error


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("{name: 'own_package.models:Mine', options: {scal: 2}}",
         ["config/experiments/own.yaml: unknown key 'model.options.scal'", "did you mean 'scale'?"]),
        ("{name: 'own_package.models:Mine', options: {scale: -1}}",
         ["key 'model.options.scale': should be greater than 0, found -1"]),
        ("{name: 'own_package.models:Mien'}", ["has no Mien", "did you mean 'Mine'?"]),
        ("{name: 'own_package.plain:Mine'}", ["plain.py: no class Options(Settings)"]),
        ("{name: 'own_package.models:EXAMPLE'}", ["is not a subclass of bayesmesh.models.base.Model"]),
    ],
)  # fmt: skip
def test_the_options_of_ones_own_model_are_checked_when_it_is_imported(
    own_package: Path, good: str, model: str, expected: list[str]
) -> None:
    (own_package / "own_package" / "plain.py").write_text("class Mine: ...\n")
    (own_package / "own.yaml").write_text(_experiment(good, model))
    spec = make_job("compile", "own", load_experiment(own_package / "own.yaml"), "results")
    with pytest.raises(ConfigError) as caught:
        component_of(spec, "model")
    for part in expected:
        assert part in str(caught.value)


def _with_function(function: str) -> str:
    return f"{{name: log_density, function: '{function}', prior: {{x: 'normal(0, 1)'}}}}"


@pytest.mark.usefixtures("own_package")
def test_a_misspelt_function_is_named_when_its_module_is_imported() -> None:
    with pytest.raises(ConfigError, match="has no Mien") as caught:
        resolve_component(
            "model", "log_density", {"function": "own_package.models:Mien", "prior": {"x": "normal(0, 1)"}}
        )
    assert "did you mean 'Mine'?" in caught.value.remedy


def test_a_function_of_ones_own_is_code_of_the_model(own_package: Path, good: str) -> None:
    (own_package / "own_package" / "functions.py").write_text(
        "from .models import EXAMPLE as other\n\ndef mine(): ...\n"
    )
    path = own_package / "own.yaml"
    for attribute in ("mine", "other"):
        path.write_text(_experiment(good, _with_function(f"own_package.functions:{attribute}")))
        model = load_experiment(path).model
        assert "own_package" not in sys.modules, "loading runs nothing"
        files = component_files("model", model.model_dump())
        assert files == [component_path("model", "log_density"), own_package / "own_package" / "functions.py"]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("own_package.nowhere:mine", "key 'model.function': unknown function 'own_package.nowhere:mine': no module"),
        ("own_package.models", "key 'model.function': should match pattern"),
    ],
)
@pytest.mark.usefixtures("own_package")
def test_a_function_that_is_not_there_is_named(
    refused: Callable[..., ConfigError], good: str, function: str, said: str
) -> None:
    assert said in str(refused(_experiment(good, _with_function(function))))


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    """A function of a kind and a line that loads a class of this kind with the line in its body."""
    module = f"traits_{abs(hash(request.node.name))}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(kind: str, line: str) -> type:
        base = f"bayesmesh.{PACKAGES[kind].partition('/')[0]}.base"
        text = f"from {base} import {kind.capitalize()} as Base\n\n\nclass Mine(Base):\n    {line}\n"
        (tmp_path / f"{module}.py").write_text(text)
        return load_component(kind, f"{module}:Mine")

    return run


@pytest.mark.parametrize(("kind", "line", "meant"), WRONG)
def test_a_misspelt_trait_is_refused_with_file_and_remedy(load, kind: str, line: str, meant: str) -> None:
    name = line.split()[0]
    with pytest.raises(
        ConfigError,
        match=rf"traits_\d+\.py: Mine: '{name}' is not a trait of {kind.capitalize()}\n  remedy: write {meant},",
    ):
        load(kind, line)


@pytest.mark.parametrize(("kind", "line", "meant"), METHODS)
def test_a_misspelt_method_that_has_a_default_is_refused(load, kind: str, line: str, meant: str) -> None:
    """One without a default is missed anyway."""
    name = line.split()[1].partition("(")[0]
    with pytest.raises(
        ConfigError, match=rf"Mine: '{name}' is not a method of {kind.capitalize()}\n  remedy: write {meant},"
    ):
        load(kind, line)
