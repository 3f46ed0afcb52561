"""The documentation is run: its examples, commands, paths, links and configurations."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from bayesmesh.cli import make_parser
from bayesmesh.config.loading import load_experiment, load_run
from bayesmesh.config.registry import list_components
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.flow import LATER, STAGES
from bayesmesh_reproduction.settings import load_settings
from tool_modules import load_tool
from workspace import bring_programs, keep_programs

ROOT = Path(__file__).resolve().parents[2]
FRONT_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "results/README.md")
PAGES = sorted([*(ROOT / name for name in FRONT_PAGES), *ROOT.glob("docs/**/*.md")])
HOW_TO = ROOT / "docs" / "how-to"
MODEL_PAGES = {HOW_TO / f"{name}.md" for name in ("brms-bambi", "formula", "models", "parameters", "pymc-numpyro")}
RESULTS_PAGE = ROOT / "docs" / "reference" / "results.md"
EXPERIMENTS_PAGE = ROOT / "docs" / "reference" / "experiments.md"
EXAMPLE = "diabetes"
example_files = load_tool("guide_examples").example_files

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# Not followed by what makes it a pattern rather than a file.
PATH = re.compile(r"`((?:src|config|workflow|docs|envs|tests|profiles|tools)/[\w./-]*\w/?)`")
FOREIGN_COMMANDS = {
    "apt-get", "cd", "conda", "git", "install.sh", "pip", "podman", "pyenv",
    "sacctmgr", "sh", "sinfo", "snakedeploy", "srun", "sudo", "unset",
}  # fmt: skip
"""Commands that are not this project's."""

READS_LIKE_A_MACHINE = re.compile(r"/(?:work|home|root|tmp|Users)/\w")


class Block(NamedTuple):
    page: Path
    language: str
    text: str


def blocks(language: str) -> list[Block]:
    return [
        Block(page, found[1], found[2])
        for page in PAGES
        for found in BLOCK.finditer(page.read_text(encoding="utf-8"))
        if found[1] == language
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def refuse(offenders: Iterable[str]) -> None:
    """Fail with a line for each offender."""
    named = sorted(offenders)
    assert not named, "\n".join(["", *named])


# -- the worked examples -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the files of the page in it."""
    folder = tmp_path_factory.mktemp("documented")
    # With compiled modules, which are valid where the times of their sources are copied too.
    for name in ("src", "config", "tests/contract", "tests/unit/sampling", "tests/support"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    for name, text in example_files().items():
        path = folder / name
        assert not (ROOT / name).exists(), f"{name} is in the project already: take another name for the example"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def run_in(folder: Path, *arguments: str) -> str:
    environment = {
        # JAX as a user has it, and not as the tests set it up.
        **{k: v for k, v in os.environ.items() if not k.startswith("JAX_")},
        "PYTHONPATH": str(folder / "src"),
        # Set here, so that one process can run several stages: each would set it for itself.
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1 --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_component_of_each_kind_is_shown_with_a_test() -> None:
    files = example_files()
    for folder in ("models", "kernels", "kernels/hamiltonian/metrics", "data/sources", "analyses"):
        shown = [name for name in files if Path(name).parent == Path("src/bayesmesh", folder)]
        assert len(shown) == 1
        assert f"tests/unit/{folder}/test_{Path(shown[0]).name}" in files


@pytest.fixture(scope="module")
def passed(tree: Path) -> list[str]:
    """Tests that pass, of the examples and of their contracts: in one process, which compiles what all need once."""
    tests = [name for name in example_files() if name.startswith("tests/")]
    which = " or ".join([*(Path(test).stem for test in tests), *example_components()])
    programs = [f"tests/unit/sampling/program/test_{name}.py" for name in ("arguments", "chain_group")]
    said = run_in(tree, "-m", "pytest", "-q", "-rp", "-p", "no:xdist", "-k", which, *tests, "tests/contract", *programs)
    return re.findall(r"^PASSED (.*)", said, re.MULTILINE)


def example_components() -> list[str]:
    return [Path(name).stem for name in example_files() if name.startswith("src/")]


def test_example_tests_pass(passed: list[str]) -> None:
    tests = {name for name in example_files() if name.startswith("tests/")}
    assert {name.partition("::")[0] for name in passed} >= tests


def test_examples_are_in_style(tree: Path) -> None:
    files = [name for name in example_files() if name.endswith(".py")]
    run_in(tree, "-m", "ruff", "check", *files)
    run_in(tree, "-m", "ruff", "format", "--check", *files)


def test_examples_keep_their_contracts(passed: list[str]) -> None:
    for component in example_components():
        assert any(name.startswith("tests/contract/") and component in name for name in passed), component


RUN_EXAMPLE = f"""
import sys
import bayesmesh.cli
assert bayesmesh.cli.__file__.startswith(sys.argv[1]), bayesmesh.cli.__file__
for stage in ("fetch", "shard", "compile", "sample", "assemble", "diagnose", "report"):
    assert bayesmesh.cli.main([stage, "--experiment", "{EXAMPLE}"]) == 0, stage
"""

COMPARED = f"{EXAMPLE}-wide"

RUN_ANALYSIS = f"""
import pathlib, shutil, sys
import bayesmesh.cli
sys.path.append("tests/support")
from recording import record_as
shutil.copytree("results/{EXAMPLE}/posterior.zarr", "results/{COMPARED}/posterior.zarr")
shutil.copy("results/{EXAMPLE}/posterior.sha256", "results/{COMPARED}")
written = map(pathlib.Path, ["results/{COMPARED}/posterior.zarr", "results/{COMPARED}/posterior.sha256"])
record_as(pathlib.Path("results"), "{COMPARED}", "assemble", written)
assert bayesmesh.cli.main(["posterior_shift", "--experiment", "{COMPARED}"]) == 0
"""


@pytest.fixture(scope="module")
def results(tree: Path) -> Path:
    """The example experiment, run through all its stages with a small budget."""
    path = tree / "config" / "experiments" / f"{EXAMPLE}.yaml"
    small = path.read_text(encoding="utf-8").replace("warmup: 1000", "warmup: 50").replace("draws: 2000", "draws: 40")
    assert small != path.read_text(encoding="utf-8")
    path.write_text(small, encoding="utf-8")
    bring_programs(tree / "results")
    run_in(tree, "-c", RUN_EXAMPLE, str(tree))
    keep_programs(tree / "results")
    return tree / "results"


def test_example_experiment_runs(results: Path) -> None:
    for name in ("posterior.zarr", "diagnostics/summary.csv", "diagnostics/verdict.json", "report.html"):
        assert (results / EXAMPLE / name).exists()


def test_example_analysis_reads_two_experiments(tree: Path, results: Path) -> None:
    """The same draws under both names, so that nothing has moved."""
    run_in(tree, "-c", RUN_ANALYSIS)
    table = (results / COMPARED / "posterior_shift" / "shifts.csv").read_text().splitlines()
    assert [line.partition(",")[2] for line in table] == ["coordinate,shift", ",0.0", ",0.0", "0,0.0"]
    (record,) = (results / "seals" / COMPARED).glob("*shift*.json")
    assert all(f"{name}/posterior.zarr" in record.read_text() for name in (EXAMPLE, COMPARED))


def test_documented_reading_of_results_runs(tree: Path, results: Path) -> None:
    code = [b.text for b in blocks("python") if b.page == RESULTS_PAGE]
    assert code
    for text in code:
        assert "results/digits/" in text
        run_in(tree, "-W", "error::DeprecationWarning:__main__", "-c", text.replace("digits", EXAMPLE))


def test_python_compiles() -> None:
    shown = [*blocks("python"), *blocks("py")]
    assert len(shown) > 10
    for block in shown:
        compile(block.text, name_of(block.page), "exec")


# -- configurations ----------------------------------------------------------------------------------------------------


def test_yaml_is_planned(tree: Path) -> None:
    """Every experiment that a page shows: all its jobs are planned, and `fetch` reads the files that it names."""
    shown, wrong = {}, list[str]()
    write_tables(tree)
    for number, block in enumerate(blocks("yaml")):
        first, path = block.text.splitlines()[0], tree / "config" / f"shown-{number}.yaml"
        if first == "# config.yaml":
            path.write_text(block.text, encoding="utf-8")
            wrong += refusals(block, lambda path=path: load_run(path))
        elif first == "# reproduction.yaml":
            path.with_name("reproduction.yaml").write_text(block.text, encoding="utf-8")
            wrong += refusals(block, lambda path=path: load_settings(path.parent))
        else:
            (tree / "config" / "experiments" / path.name).write_text(configuration_of(block), encoding="utf-8")
            shown[path.stem] = block
    assert len(shown) > 30
    # They name components and modules that only the copy has; one process plans them all.
    planned = json.loads(run_in(tree, "-c", PLAN, *shown).splitlines()[-1])
    refuse([*wrong, *(f"{describe(shown[name])}: {why}" for name, why in planned["wrong"])])
    assert {*planned["read"]} == {*TABLES}


TABLES = {
    "flats.csv": "price,area,town\n200,50,Bonn\n310,80,Aachen\n250,60,Bonn\n",
    "data/flats.csv": "price,rooms,area_living,area_garden,town\n200,2,50,0,Bonn\n310,4,80,12,Aachen\n250,2,60,3,Bonn\n",
    "data/flowers.parquet": "sepal_length,petal_length,colour,species\n5.1,1.4,blue,a\n6.2,4.5,white,b\n7.1,5.9,blue,c\n",
    "data/rows.npz": "x,y\n0.1,0.2\n0.3,0.1\n0.2,0.5\n",
    "trees.csv": "growth,age,mass,species,site\n2.1,10,30,oak,a\n1.2,20,50,elm,b\n1.7,15,45,oak,b\n",
    "stars.csv": "reader,book,stars\nann,emma,4\nbob,ulysses,2\nann,ulysses,5\n",
    "epilepsy.csv": "count,zAge,zBase,Trt,patient\n5,0.4,-0.3,0,1\n3,0.1,0.2,1,2\n8,0.4,-0.3,0,1\n",
    "sites.csv": "height,width,site\n1.0,2.0,a\n1.5,2.5,a\n0.5,1.0,b\n",
}
"""Files of data that experiments on pages name, with rows for which the experiments are valid."""


def write_tables(root: Path) -> None:
    """Write them, in the format of their names."""
    (root / "data").mkdir()
    for name, text in TABLES.items():
        table = pd.read_csv(io.StringIO(text))
        if name.endswith(".npz"):
            np.savez(root / name, measurements=table.to_numpy())
        elif name.endswith(".parquet"):
            table.to_parquet(root / name)
        else:
            table.to_csv(root / name, index=False)


PLAN = """
import json, pathlib, sys
from bayesmesh.cli import main
from bayesmesh.errors import UserError
from bayesmesh.models.glm.formula import parse_formula
from bayesmesh.workflow.plan import Plan
def header(file):
    return pathlib.Path(file).read_text().partition("\\n")[0].split(",")
plan, wrong, read = Plan(asked=None), [], set()
for shown in sys.argv[1:]:
    try:
        names = plan.sweeps[shown].members if shown in plan.sweeps else [shown]
        jobs = plan.jobs(*names)
        files = {name for each in jobs if each.job.stage == "fetch" for name in each.job.files.find()}
        read |= files
        if files and main(["fetch", "--experiment", next(iter(names))]):
            wrong.append((shown, "fetch fails"))
        for name in names if files else ():
            if formula := getattr(plan.experiments[name].model, "formula", ""):
                parse_formula(formula, next(map(header, files)))
    except UserError as error:
        wrong.append((shown, str(error)))
print(json.dumps({"wrong": wrong, "read": sorted(read)}))
"""


def configuration_of(block: Block) -> str:
    """Return the configuration that a page shows: whole, or with the keys of `digits` that it leaves out."""
    if block.text.splitlines()[0] in ("# config.yaml", "# experiment"):
        return block.text
    given = {line.partition(":")[0] for line in block.text.splitlines() if re.match(r"\w", line)}
    # Averaging is for labels, which the models of these pages do not predict.
    given |= {"averaging"} if block.page in MODEL_PAGES else set()
    kept, is_kept = [], True
    for line in (ROOT / "config" / "experiments" / "digits.yaml").read_text(encoding="utf-8").splitlines():
        if re.match(r"\w", line):
            is_kept = line.partition(":")[0] not in given
        kept += [line] if is_kept else []
    return "\n".join([*kept, block.text])


def refusals(block: Block, load: Callable[[], object]) -> list[str]:
    """Return why what a page shows cannot be loaded; nothing when it can."""
    try:
        load()
    except ConfigError as error:
        return [f"{describe(block)}: {error}"]
    return []


def describe(block: Block) -> str:
    return f"{name_of(block.page)}: {block.text.splitlines()[0][:40]}"


# -- commands ----------------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[Path, str]]:
    for block in blocks("sh"):
        for line in block.text.splitlines():
            if line.strip() and not line.startswith("#"):
                yield block.page, line
    for page in PAGES:
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for found in re.finditer(r"`((?:make|\.venv/bin/\w+|bayesmesh|snakemake) [^`]+)`", text):
            yield page, found[1]


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def snakemake_targets() -> set[str]:
    text = "".join(
        p.read_text(encoding="utf-8")
        for p in [
            ROOT / "Snakefile",
            ROOT / "workflow" / "Snakefile",
            *ROOT.glob("workflow/rules/*.smk"),
            *ROOT.glob("src/*/rules.smk"),
        ]
    )
    experiments = {p.stem for p in ROOT.glob("config/experiments/*.yaml")} | {EXAMPLE, COMPARED}
    outputs = {"results/index.html"}
    return set(re.findall(r"^rule (\w+):", text, re.MULTILINE)) | experiments | outputs


def verbs() -> set[str]:
    documented = {Path(name).stem for name in example_files() if name.startswith("src/bayesmesh/analyses/")}
    return documented | set(re.findall(r"^    ([a-z]+)\b", make_parser().format_help(), re.MULTILINE))


def misfit(command: str) -> str:
    """Return what is wrong with a command, or nothing."""
    words = shlex.split(command, comments=True)
    words = words[next((i for i, w in enumerate(words) if not re.match(r"[A-Z_]+=", w)), len(words)) :]
    if not words:
        return ""
    program, arguments = Path(words[0]).name, [w for w in words[1:] if not re.match(r"[A-Z_]+=", w)]
    if program == "make":
        return ", ".join(f"make has no target {w}" for w in arguments if w not in make_targets() and w != "...")
    if program == "bayesmesh":
        return "" if arguments and (arguments[0] in {*verbs(), "--help", "--version"}) else f"no verb {arguments}"
    if program == "snakemake":
        # The words that follow an option with a value are that value.
        valued = {"--profile", "--software-deployment-method", "--cores", "--forcerun", "--report"}
        targets = [
            w for i, w in enumerate(arguments) if not w.startswith("-") and (not i or arguments[i - 1] not in valued)
        ]
        profiles = [w for i, w in enumerate(arguments) if i and arguments[i - 1] == "--profile"]
        wrong = [f"snakemake has no target {t}" for t in targets if t not in snakemake_targets()]
        return ", ".join([*wrong, *(f"no profile {p}" for p in profiles if not (ROOT / p).is_dir())])
    is_known = program in FOREIGN_COMMANDS or words[0] == ".venv/bin/python" or (ROOT / words[0]).is_file()
    return "" if is_known else f"unknown program {program}"


def test_commands_exist() -> None:
    found = list(commands())
    assert len(found) > 10
    wrong = {f"{page.name}: {command}": misfit(command) for page, command in found}
    assert not {k: v for k, v in wrong.items() if v}


def test_the_map_has_a_row_for_every_stage() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `(workflow/\S+)` \| `(src/\S+)` \|", (ROOT / "docs" / "map.md").read_text(), re.MULTILINE
    )
    stages = [stage for stage in STAGES if stage not in LATER]
    assert [row[0] for row in rows] == [*stages[:-1], "analyse", stages[-1]]
    for stage, rule, module in rows:
        # The rules of analyses take their names from the analyses.
        assert ("rule:" if stage == "analyse" else f"rule {stage}:") in (ROOT / rule).read_text()
        assert module == f"src/bayesmesh/workflow/stages/{stage}.py"


def test_the_picture_of_the_flow_is_current() -> None:
    picture = load_tool("flow_picture")
    assert picture.PICTURE.read_text(encoding="utf-8") == "\n".join(picture.lines()) + "\n", "run make schema"


# -- paths and links ---------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def resolves(page: Path, link: str) -> bool:
    """Whether the file that a link leads to is there, and has the heading that the link names."""
    target, _, anchor = link.partition("#")
    file = (page.parent / target).resolve() if target else page
    return file.exists() and (not anchor or anchor in anchors(file))


def test_links_resolve() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))]
    assert len(links) > 40
    refuse(f"{name_of(p)}: {link}" for p, link in links if not link.startswith("http") and not resolves(p, link))
    # The site has no source code, and is strict about links.
    refuse(f"{name_of(p)}: {link}" for p, link in links if "../src/" in link)


def test_paths_exist() -> None:
    paths = [(page, path) for page in PAGES for path in PATH.findall(page.read_text(encoding="utf-8"))]
    assert len(paths) > 40
    refuse(
        f"{name_of(p)}: {path}"
        for p, path in paths
        if not any((root / path).exists() for root in (ROOT, ROOT / "src/bayesmesh")) and path not in example_files()
    )


def test_no_page_names_a_place_of_a_machine() -> None:
    found = ((page, READS_LIKE_A_MACHINE.findall(page.read_text(encoding="utf-8"))) for page in PAGES)
    refuse(f"{name_of(page)}: {place}" for page, places in found for place in places)


def test_every_page_is_linked() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not link.startswith("http")
    }
    assert not [str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md") if p.resolve() not in linked]


def test_every_experiment_is_described() -> None:
    text = EXPERIMENTS_PAGE.read_text(encoding="utf-8")
    assert not [p.stem for p in ROOT.glob("config/experiments/*.yaml") if f"`{p.stem}`" not in text]


def test_the_page_on_citing_has_every_kernel() -> None:
    text = (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
    assert [name for name in list_components("kernel") if f"\n| `{name}`" not in text] == []


ROW = re.compile(r"^\| `([\w-]+)` \|(?:[^|]*\|){3} (\d+)[^|]*\| ([\d,]+) \+ ([\d,]+) \|", re.MULTILINE)


def test_table_of_experiments_has_their_budgets() -> None:
    text = EXPERIMENTS_PAGE.read_text(encoding="utf-8")
    shown = {m[1]: tuple(int(n.replace(",", "")) for n in m.group(2, 3, 4)) for m in ROW.finditer(text)}
    actual = {}
    for path in ROOT.glob("config/experiments/*.yaml"):
        sampling = load_experiment(path).sampling
        actual[path.stem] = (sampling.chains, sampling.warmup, sampling.draws)
    assert shown == actual, (
        "write chains, warmup and draws of the files into the table of docs/reference/experiments.md"
    )
