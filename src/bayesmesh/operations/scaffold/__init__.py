"""Write the first files of a new component, experiment or project.

A model, source, kernel, metric or analysis comes with its test, from a template that runs unchanged. In a checkout its files go into
the package `bayesmesh`; in a user's project, into a folder of the project's own package, one for each kind, because all files of a
component's folder count as its code. A project has its configuration, a model, a table, a Snakefile, tests and profiles.
"""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from bayesmesh import __version__
from bayesmesh.config.declarations import OTHER_VERBS
from bayesmesh.config.experiment import RESERVED_NAMES, experiment_class
from bayesmesh.config.loading import refuse_folder
from bayesmesh.config.registry import OTHER_FILES, PACKAGES
from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.errors import ConfigError
from bayesmesh.workflow import PROFILES

FOLDERS = {**PACKAGES, "metric": "kernels/hamiltonian/metrics"}
"""Kind -> folder of the package, and of tests/unit, with one file for each component."""

KINDS = (*FOLDERS, "experiment")

COMPONENT_PATTERN = r"^[a-z][a-z0-9_]{0,31}$"
_TEMPLATES = Path(__file__).parent / "templates"

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


def write_new(kind: str, name: str, root: Path, text: str = "") -> list[Path]:
    """Write the files of a new component or experiment and return their paths, relative to `root`.

    Args:
        kind: one of `KINDS`.
        name: name of the component or the experiment, and of its file.
        root: folder of the project.
        text: text of an experiment; that of the template by default.

    Raises:
        ConfigError: the name is invalid or a file exists already; nothing was written.
    """
    package = find_package(root) if kind != "experiment" else ""
    planned = _plan_new(kind, name, root, package)
    texts = ((file, (_TEMPLATES / template).read_text(encoding="utf-8")) for template, file in planned)
    _write(root, {file: (text or _fill(kind, name, example, package)).encode() for file, example in texts})
    return [file for _, file in planned]


def _plan_new(kind: str, name: str, root: Path, package: str) -> list[tuple[str, Path]]:
    """Return template and path of each file, none of which exists."""
    _check_name(kind, name)
    if package and kind == "metric":
        raise ConfigError(
            "a metric belongs to the kernels of bayesmesh, and this is a project of your own",
            "write a kernel with a metric of its own: bayesmesh new kernel NAME",
        )
    planned = _plan(kind, name, package)
    for _, file in planned:
        path = root / file
        # A package with that name would shadow the new file.
        for there in (path, path.with_suffix("")):
            if there.exists() or there.is_symlink():
                raise ConfigError(
                    f"{there.relative_to(root)}: exists already", "choose another name; nothing was written"
                )
    home = root / (package or planned[0][1].parent)
    if not home.is_dir():
        raise ConfigError(f"{home.relative_to(root)}: no such folder", "run this in the folder of the project")
    return planned


def run_new(arguments: argparse.Namespace) -> int:
    """Write the files and print their paths and the next steps; return the exit code."""
    table, formula, text, lines = arguments.table, arguments.formula, "", list[str]()
    if (table is None) != (formula is None) or (table is not None and arguments.kind != "experiment"):
        raise ConfigError(
            "--table and --formula describe a new experiment together",
            'for example bayesmesh new experiment flats --table flats.csv --formula "price ~ area"',
        )
    if table is not None:
        # Before the table is read: the name may exist already.
        _plan_new(arguments.kind, arguments.name, Path(), "")
        # Readers of tables take time to import.
        from bayesmesh.operations.scaffold.experiment import guess_experiment

        text, lines = guess_experiment(_spoken(arguments.name), table, formula)
    paths = write_new(arguments.kind, arguments.name, Path(), text)
    print("\n".join([*(f"{path}: written" for path in paths), *lines]))
    package = find_package(Path()) if arguments.kind != "experiment" else ""
    print(
        _next_steps_in_project(arguments.kind, arguments.name, package)
        if package
        else _next_steps(arguments.kind, arguments.name)
    )
    return 0


def _write(root: Path, files: Mapping[Path, bytes]) -> None:
    """Write files below a folder; those that exist were refused, but may have been created since."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        with (root / path).open("xb") as handle:
            handle.write(content)


def find_package(root: Path) -> str:
    """Return the package of a project; empty in a checkout of this one.

    It has the name of the project's folder, as `bayesmesh init` writes it; or it is the one folder of Python files whose
    components the experiments name.

    Args:
        root: folder of the project.

    Raises:
        ConfigError: there is none, or there are several.
    """
    if (root / "src" / "bayesmesh").is_dir():
        return ""
    named = root.absolute().name.replace("-", "_")
    if (root / named).is_dir() and named.isidentifier():
        return named
    texts = [
        file.read_text(encoding="utf-8", errors="replace") for file in (root / "config" / "experiments").glob("*.yaml")
    ]
    words = {word for text in texts for word in re.findall(r"\b([A-Za-z_]\w*)(?:\.\w+)*:[A-Za-z_]", text)}
    found = sorted(word for word in words if any((root / word).rglob("*.py")))
    if len(found) == 1:
        return found[0]
    several = f"; experiments name {', '.join(found)}" if found else ""
    raise ConfigError(
        f"no folder {named}/ with the project's package{several}",
        f"run this in the folder of a project, or make the folder {named if named.isidentifier() else 'my_study'}/ for its code",
    )


def _next_steps(kind: str, name: str) -> str:
    """Return the next steps for the new files, as lines of text."""
    if kind == "experiment":
        # The commands of a checkout are in its own environment.
        tools, every = (".venv/bin/", "make run") if Path("src", "bayesmesh").is_dir() else ("", "snakemake")
        return (
            f"next: edit it, preview the jobs with `{tools}snakemake --dry-run {name}`, and run it with `{tools}bayesmesh run {name}`.\n"
            f"Add it to `experiments` in config/config.yaml to include it in `{every}`."
        )
    used = {
        "source": f"data: {{source: {name}}}",
        "metric": f"kernel: {{name: nuts, metric: {name}}}",
        "analysis": f"{name}: {{}}",
    }.get(kind, f"{kind}: {{name: {name}}}")
    contract = "test_analyses.py" if kind == "analysis" else f"test_{kind}s.py"
    described = "kernel.md#a-metric" if kind == "metric" else f"{kind}.md"
    test = _plan(kind, name)[1][1]
    other = (
        "Without Hamiltonian trajectories, begin with the kernel of docs/how-to/add-kernel.md.\n"
        if kind == "kernel"
        else ""
    )
    if kind != "metric":
        other += f"Before you share it, move its class Options to src/bayesmesh/{FOLDERS[kind]}/options.py (docs/how-to/extending.md).\n"
    # `make new-model` installs what models need, and not the tools of the tests.
    tools = "" if importlib.util.find_spec("pytest") else "tools/bootstrap.sh dev && "
    return (
        f"next: replace the example by your own {kind}; its contract is docs/contracts/{described}.\n{other}"
        f"Check it: {tools}.venv/bin/python -m pytest {test} tests/contract/{contract} -k {name}\n"
        f"and {'' if kind == 'metric' else f'.venv/bin/bayesmesh check {name}, and '}with every test that takes each {kind}: .venv/bin/python -m pytest -k {name}\n"
        f"Then run `make schema`, which adds {'its name to config/schema.json' if kind == 'metric' else 'its keys to config/'}.\n"
        f"Use it in an experiment: {used}"
    )


def _next_steps_in_project(kind: str, name: str, package: str) -> str:
    """Return the next steps for new files of a project, as lines of text."""
    component = f"{package}.{_folder_in_project(kind)}.{name}:{_class_name(kind, name)}"
    used = {
        "source": f"data:\n      source: {component}",
        "analysis": f"analyses:\n      {component}: {{}}",
    }.get(kind, f"{kind}:\n      name: {component}")
    return (
        f"next: replace the example by your own {kind}; its contract is docs/contracts/{kind}.md of bayesmesh.\n"
        f"Use it in an experiment:\n    {used}\n"
        f"Check it: bayesmesh check {component}"
    )


def _check_name(kind: str, name: str) -> None:
    pattern, reserved = COMPONENT_PATTERN, frozenset({*OTHER_FILES, *keyword.kwlist})
    if kind == "experiment":
        pattern, reserved = NAME_PATTERN, RESERVED_NAMES
    if kind == "analysis":
        # Its name is a key of an experiment, a rule and a verb.
        reserved |= {*experiment_class().model_fields, *RESERVED_NAMES, *OTHER_VERBS}
    if not re.fullmatch(pattern.strip("^$"), name):
        plain = re.sub(r"[^a-z0-9]+", "-" if kind == "experiment" else "_", name.lower()).strip("-_")
        is_usable = re.fullmatch(pattern.strip("^$"), plain) and plain not in reserved
        guess = plain if is_usable else f"my_{kind}"
        raise ConfigError(
            f"{name!r:.80} is not a valid name for {_a(kind)}", f"names match {pattern}, for example {guess}"
        )
    if name in reserved:
        raise ConfigError(f"'{name}' is not a valid name for {_a(kind)}: it is reserved", f"for example my_{name}")


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _plan(kind: str, name: str, package: str = "") -> list[tuple[str, Path]]:
    """Return template and path of each file."""
    if kind == "experiment":
        return [("experiment.yaml", Path("config", "experiments", f"{name}.yaml"))]
    if package:
        return [
            (f"{kind}.py", Path(package, _folder_in_project(kind), f"{name}.py")),
            (f"{kind}_check.py", Path("tests", f"test_{name}.py")),
        ]
    folder = FOLDERS[kind]
    return [
        (f"{kind}.py", Path("src", "bayesmesh", folder, f"{name}.py")),
        (f"{kind}_check.py", Path("tests", "unit", folder, f"test_{name}.py")),
    ]


def _folder_in_project(kind: str) -> str:
    """Return the folder of a project's package for a kind of component: models, sources, kernels or analyses."""
    return Path(FOLDERS[kind]).name


def _own_import_last(text: str, module: str) -> str:
    """Put the import of a project's module after those of the packages that it uses."""
    line = next((each for each in text.splitlines(keepends=True) if each.startswith(f"from {module} import ")), "")
    others = text.replace(line, "", 1) if line else text
    used = [*re.finditer(r"^from bayesmesh\.\S+ import .*\n", others, flags=re.M)]
    if not line or not used:
        return text
    return f"{others[: used[-1].end()]}\n{line}{others[used[-1].end() :]}"


def _spoken(name: str) -> str:
    return re.sub(r"[_-]+", " ", name).strip().capitalize()


def _class_name(kind: str, name: str) -> str:
    return "".join(map(str.capitalize, name.split("_"))) + kind.capitalize()


def _fill(kind: str, name: str, text: str, package: str = "") -> str:
    """Replace the names of the example by those of the new component."""
    spoken = _spoken(name)
    if kind == "experiment":
        return text.replace("New experiment", f'"{spoken}"')
    example, own = f"New{kind.capitalize()}", _class_name(kind, name)
    module = (
        f"{package}.{_folder_in_project(kind)}.{name}"
        if package
        else f"bayesmesh.{FOLDERS[kind].replace('/', '.')}.{name}"
    )
    names = {
        f"bayesmesh.operations.scaffold.templates.{kind}": module,
        f'declared("new_{kind}")': f'declared("{module}:{own}")' if package else f'declared("{name}")',
        f"new_{kind}": name,
        f"New {kind}": spoken,
        example: own,
    }
    # In one pass, because a new name may contain an old one.
    text = re.sub("|".join(map(re.escape, names)), lambda found: names[found[0]], text)
    # Among the imports, the component's module may sort differently from the example's.
    runs = r"(?:^from bayesmesh\.\S+ import [^(\n]*\n)+"
    text = re.sub(runs, lambda found: "".join(sorted(found[0].splitlines(keepends=True))), text, flags=re.M)
    if package:
        text = _own_import_last(text, module)
    # Sort names as the linter does: ignoring case in imports, respecting it in `__all__`.
    imported = rf"(?<=from {re.escape(module)} import ).*"
    text = re.sub(imported, lambda found: ", ".join(sorted(found[0].split(", "), key=str.lower)), text)
    return re.sub(r"(?<=__all__ = \[).*(?=\])", lambda found: ", ".join(sorted(found[0].split(", "))), text)


# -- a project -----------------------------------------------------------------------------------------------------------


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
    _write(folder, files)
    for path in (path for path in files if path.suffix == ".sh"):
        (folder / path).chmod(0o755)
    return list(files)


def run_init(arguments: argparse.Namespace) -> int:
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
    spoken = _spoken(name)
    words = {"new_project": package, "New project": spoken, "bayesmesh==VERSION": f"bayesmesh=={__version__}"}
    pattern = re.compile("|".join(map(re.escape, words)))
    found = {}
    for template, path in _FILES.items():
        text = pattern.sub(
            lambda match: words[match[0]], (_TEMPLATES / "project" / template).read_text(encoding="utf-8")
        )
        found[Path(path.replace("new_project", package))] = text.encode()
    profiles = sorted(path for path in PROFILES.rglob("*") if path.is_file())
    return {**found, **{Path("profiles", path.relative_to(PROFILES)): path.read_bytes() for path in profiles}}
