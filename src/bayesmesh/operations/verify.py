"""verify: name everything that is damaged or out of date, and make it again if asked."""

from __future__ import annotations

import argparse
from pathlib import Path

from bayesmesh.errors import ConfigError, StoreError
from bayesmesh.operations.repair import repair
from bayesmesh.operations.verify_files import Findings, check, is_stored, list_owners, read_records


def run(arguments: argparse.Namespace) -> int:
    """Check one experiment and its data, or everything stored; return the exit code."""
    results, owners = _asked(arguments.experiment)
    found: dict[str, Findings] = {}
    for owner in owners:
        try:
            found[owner] = check(results, owner)
        except OSError as error:
            # Not among the damaged, because `--repair` would move away results that may be intact.
            print(f"{error.filename}: cannot be read: {error.strerror}; {results / owner} was not checked")
        else:
            _show(results, owner, found[owner])
    if not owners:
        print("nothing to check: nothing is stored yet")
    wrong = {owner: findings for owner, findings in found.items() if findings.wrong}
    if wrong and arguments.repair and (code := repair(results, wrong)):
        return code
    is_known = len(found) == len(owners) and (arguments.repair or not wrong)
    return 0 if is_known else StoreError.exit_code


def _show(results: Path, owner: str, findings: Findings) -> None:
    for line in (*findings.wrong, *findings.writers):
        print(line)
    counts = {"damaged": len(findings.damaged), "out of date": len(findings.outdated)}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    print(f"{results / (owner or 'index.html')}: {said or 'everything is as it was written'}")


def _asked(name: str | None) -> tuple[Path, list[str]]:
    """Return the folder of results, and the owners to check; for one experiment, its data too.

    Raises:
        ConfigError: nothing is stored under that name.
    """
    if name is None:
        return Path("results"), list_owners(Path("results"))
    folder = Path(name) if "/" in name else Path("results", name)
    results, owner = folder.parent, folder.name
    if not owner or len(name) > 4096 or not is_stored(results, owner):
        raise ConfigError(
            f"{name}: nothing is stored under this name",
            "name an experiment that has run, or its folder: bayesmesh verify results/NAME",
        )
    read = (name for record in read_records(results, owner)[0] for name in record.inputs)
    data = {"/".join(Path(each).parts[:2]) for each in read if each.startswith("data/")}
    return results, [*sorted(data), owner]
