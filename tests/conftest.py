"""Fixtures of all tests, and the devices they run on."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import install_import_hook

import cases
import programs
from rank_promotion import refuse_rank_promotion
from workspace import programs_of_stages

# Set on some machines; every process that a test starts would compile each module that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

CHEAP_COMPILATION = ("--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1")
"""Options of XLA for programs that run for milliseconds: nothing is optimised, and no thread has a module of its own."""

# Eight virtual devices, so that meshes of 1 to 8 can be compared in one process; and no optimisation, for most programs
# run for milliseconds and would be optimised for seconds. JAX reads this when it is imported and when its first array is
# made; both come after this file.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "true"
os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
# Each once: a worker inherits them, and the key of a compiled program would tell it from a process without workers.
os.environ["XLA_FLAGS"] = " ".join(
    dict.fromkeys(
        [*os.environ.get("XLA_FLAGS", "").split(), "--xla_force_host_platform_device_count=8", *CHEAP_COMPILATION]
    )
)

CACHE_VARIABLE = "BAYESMESH_TEST_CACHE"
"""Names another folder for compiled programs than the one among the user's caches."""

CACHE_BYTES = 2**30
"""What is kept of it from one run to the next."""

STAGES_BYTES = 2**26
"""What is kept of programs of stages; beyond that, the next run starts over."""


def _cache_folder() -> str:
    """Return a folder for programs that this processor can run: a home may be mounted on several machines."""
    about = Path("/proc/cpuinfo")
    features = re.findall(r"^flags.*|^Features.*", about.read_text() if about.exists() else "", re.MULTILINE)[:1]
    digest = hashlib.sha256(repr((platform.machine(), features)).encode()).hexdigest()[:8]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return str(caches / "bayesmesh" / f"xla-of-tests-{digest}")


# Shared by the tests of this run, the processes that they start, and later runs of any checkout: a program is compiled
# once for each text, version and machine. Programs of stages that run as a user's are kept where those keep them.
os.environ.setdefault(CACHE_VARIABLE, _cache_folder())
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ[CACHE_VARIABLE]
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

# PyTensor would compile its own modules in C, ten seconds of them, for graphs that tests evaluate once.
os.environ.setdefault("PYTENSOR_FLAGS", "cxx=")

# Shapes and dtypes in annotations are checked at every call. A module is instrumented when it is imported, so this comes
# before any of ours.
INSTRUMENTED = [
    *("diagnostics", "models", "kernels.base", "kernels.hamiltonian", "kernels.targets", "kernels.adaptation"),
    *(
        f"kernels.{module}"
        for module in (
            "chees",
            "gibbs",
            "hmc",
            "mala",
            "mams",
            "nuts",
            "random_walk",
            "replica_exchange",
            "tempered_smc",
            "unit_hmc",
        )
    ),
    # Of sampling those alone that tests call with what a run gives them: others get shards, or rows of numpy, of a test.
    *(f"sampling.{module}" for module in ("initial", "chain_position", "program_rows")),
]
# The hook says nothing about a name that it never meets.
SOURCE = Path(__file__).resolve().parents[1] / "src" / "bayesmesh"
if gone := [m for m in INSTRUMENTED if not any(SOURCE.glob(m.replace(".", "/") + s) for s in ("", ".py"))]:
    raise pytest.UsageError(f"INSTRUMENTED names modules that do not exist: {', '.join(gone)}")
install_import_hook([f"bayesmesh.{module}" for module in INSTRUMENTED], "beartype.beartype")

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a folder of the system, in which pytest makes one of its own
ROOM = 4 * 2**30
"""Bytes that must be free there."""


MOST_RESIDENT = 2 * 2**30
"""Memory of a worker, in bytes, beyond which it drops its compiled programs after a module."""


def pytest_configure() -> None:
    """Keep temporary folders in memory where there is room: tests of the store flush files thousands of times."""
    if MEMORY_DISK.is_dir() and os.access(MEMORY_DISK, os.W_OK) and shutil.disk_usage(MEMORY_DISK).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_DISK))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep of the compiled programs those that were used last; workers leave that to who started them."""
    if hasattr(session.config, "workerinput"):
        return
    uses = []
    for path in Path(os.environ[CACHE_VARIABLE]).glob("*-cache"):
        with contextlib.suppress(FileNotFoundError):
            uses.append((path.stat().st_atime, path.stat().st_size, path))
    kept = 0
    for _, size, path in sorted(uses, reverse=True):
        kept += size
        if kept > CACHE_BYTES:
            path.unlink(missing_ok=True)
    # Every workspace gets a copy of all of these, so there is no record of which are used.
    programs, size = [*programs_of_stages().glob("*-cache")], 0
    for path in programs:
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    for path in programs if size > STAGES_BYTES else ():
        path.unlink(missing_ok=True)


collect_ignore = ["tabular/family_models.py", "tabular/make_reference.py", "tabular/written_out.py"]
"""A script for another environment, which does not import here."""

LONGEST_FIRST = ("test_docs", "workflow", "chaos", "scaffold", "compile", "exact", "contract", "sampling", "browser")
"""Modules, and folders of modules, that take a minute or more: begun last, one of them would keep one worker busy and the
others idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long modules."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    last = len(places)
    items.sort(key=lambda item: min(places.get(item.path.stem, last), places.get(item.path.parent.name, last)))


def pytest_collection_finish() -> None:
    """Refuse rank promotion once the tests that use JAX have imported it; other tests do without the import."""
    if "jax" in sys.modules:
        refuse_rank_promotion()
    # Modules and collected tests live to the end, and tracing makes garbage fast: collected at the default pace, an
    # eighth of the processor time goes into walking what is not garbage.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def leave_no_handlers() -> Iterator[None]:
    """Remove what the command line set up for its log: it writes to the stderr of a test that is over."""
    before = list(logging.root.handlers)
    yield
    for handler in list(logging.root.handlers):
        # Not the subclasses, which are pytest's own.
        if handler not in before and type(handler) in (logging.StreamHandler, logging.FileHandler):
            logging.root.removeHandler(handler)
            handler.close()


def _resident_bytes() -> int:
    about = Path("/proc/self/statm")
    return int(about.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if about.exists() else 0


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """Drop the compiled programs of a worker that has become large: they would grow to 5 GB in a run of all tests."""
    yield
    if "jax" in sys.modules and _resident_bytes() > MOST_RESIDENT:
        programs.forget()
        gc.collect()


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Return the folder with the real data files; in CI it must be there."""
    value = os.environ.get("BAYESMESH_MIRROR", "")
    if not value:
        reason = "BAYESMESH_MIRROR is not set: no real data"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(value)


@pytest.fixture(scope="session")
def user_environment() -> dict[str, str]:
    """Return the environment for a subprocess that is to see what a user's would: no virtual devices.

    Programs are compiled without optimisation, as most that run in tests run for milliseconds; those on real data and
    those of the documentation are compiled as a user's.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("JAX_") or k == "JAX_PLATFORMS"}
    return {**kept, "XLA_FLAGS": " ".join(CHEAP_COMPILATION)}


@pytest.fixture(scope="session")
def make_case() -> Callable[..., cases.Case]:
    """Return a function of (model name, dtype, num_rows, **options) that finds the model data it can read.

    No table says which model reads which data: the embedded sources are tried in order, and the first whose rows the
    model takes is used. A model of new data comes with its source, or with one that simulates.
    """
    return cases.make_case


@pytest.fixture(scope="session")
def make_target() -> Callable[..., Any]:
    """Return a function of (case, num_devices, row_tile) that binds a case's model to the shape of its data."""

    def make(case: cases.Case, num_devices: int = 1, row_tile: int = cases.NUM_ROWS) -> Any:
        from bayesmesh.sampling.density.log_density import Target
        from bayesmesh.sampling.density.rows import lay_out_rows

        layout = lay_out_rows(case.spec.num_rows, num_devices, row_tile, case.spec.entry_counts)
        return Target(case.model, case.spec, layout)

    return make


@pytest.fixture(scope="session")
def build() -> Callable[..., programs.Built]:
    """Return a function of (case, kernel name, ...) that compiles the programs of a chain group over a mesh.

    What differs in the numbers that are arguments of programs alone is compiled once in a session.
    """
    return programs.build


@pytest.fixture(scope="session")
def make_program() -> Callable[..., Any]:
    """Return a function of (case, kernel, num_chains, num_warmup, most_draws, mesh, row_tile, initial, options, sharding)."""
    return programs.make_program
