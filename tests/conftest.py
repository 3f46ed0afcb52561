"""Fixtures of all tests, and the devices they run on."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jaxtyping import install_import_hook

from rank_promotion import refuse_rank_promotion

# Set on some machines; every process that a test starts would compile each module that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Eight virtual devices, so that meshes of 1 to 8 can be compared in one process; and no optimisation, for most programs
# run for milliseconds and would be optimised for seconds. JAX reads this when it is imported and when its first array is
# made; both come after this file.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "true"
os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
os.environ["XLA_FLAGS"] = " ".join(
    [
        *os.environ.get("XLA_FLAGS", "").split(),
        "--xla_force_host_platform_device_count=8",
        "--xla_backend_optimization_level=0",
    ]
)

CACHE_VARIABLE = "BAYESMESH_TEST_CACHE"
"""Names another folder for compiled programs than the one among the user's caches."""

CACHE_BYTES = 2**30
"""What is kept of it from one run to the next."""


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

# Shapes and dtypes in annotations are checked at every call. A module is instrumented when it is imported, so this comes
# before any of ours.
INSTRUMENTED = [
    *("diagnostics", "models", "kernels.base", "kernels.hamiltonian", "kernels.targets", "kernels.adaptation"),
    *(f"kernels.{module}" for module in ("chees", "hmc", "nuts", "random_walk", "replica_exchange")),
    # Of sampling those alone that tests call with what a run gives them: others get shards, or rows of numpy, of a test.
    *(f"sampling.{module}" for module in ("initial", "position", "rows")),
]
install_import_hook([f"bayesmesh.{module}" for module in INSTRUMENTED], "beartype.beartype")

if TYPE_CHECKING:
    import numpy as np

    from bayesmesh.data.base import DataSpec
    from bayesmesh.models.base import Model

NUM_ROWS = 37
"""Rows of a case: few, and divisible by nothing, so that every mesh and every tile needs padding."""


MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - a folder of the system, in which pytest makes one of its own
ROOM = 4 * 2**30
"""Bytes that must be free there."""


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


LONGEST_FIRST = ("test_docs", "workflow", "chaos", "scaffold", "compile", "exact", "contract", "browser")
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
    return {**kept, "XLA_FLAGS": "--xla_backend_optimization_level=0"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with a few rows of data that it can read.

    Attributes:
        name: of the model in the registry.
        source: the embedded source that the rows come from.
        spec: of the rows, float64.
        rows: field -> (num_rows, ...).
    """

    name: str
    source: str
    model_class: type[Model]
    options: Any
    spec: DataSpec
    rows: Mapping[str, np.ndarray]

    def with_dtype(self, dtype: str) -> Case:
        """Return the same case in another precision."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, dtype=dtype))

    @property
    def model(self) -> Model:
        return self.model_class(self.options, self.spec)

    @property
    def arrays(self) -> dict[str, Any]:
        """The rows on the device; floating-point fields in the case's dtype."""
        import jax.numpy as jnp

        return {k: jnp.asarray(v, self.spec.dtype if v.dtype.kind == "f" else v.dtype) for k, v in self.rows.items()}


@pytest.fixture(scope="session")
def make_case() -> Callable[..., Case]:
    """Return a function of (model name, dtype, num_rows, **options) that finds the model data it can read.

    No table says which model reads which data: the embedded sources are tried in order, and the first whose rows the
    model takes is used. A model of new data comes with its source, or with one that simulates.
    """
    return _make_case


def _make_case(name: str, dtype: str = "float64", num_rows: int = NUM_ROWS, **options: Any) -> Case:
    import jax

    from bayesmesh.config.registry import component_path, list_components, load_component, read_options
    from bayesmesh.data.base import DataSpec, FieldSpec

    model_class = load_component("model", name)
    model_options = read_options(component_path("model", name))(**options)
    refusals = []
    for source in list_components("source"):
        dataset = _read_embedded(source)
        if dataset is None:
            continue
        rows = {k: v[:num_rows] for k, v in dataset.rows.items()}
        fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
        spec = DataSpec(len(next(iter(rows.values()))), fields, dataset.constants, "float64")
        case = Case(name, source, model_class, model_options, spec, rows)
        try:
            latents = jax.eval_shape(lambda case=case: case.model.prior(case.spec).sample(seed=jax.random.key(0)))
            jax.eval_shape(case.model.log_likelihood, latents, case.arrays)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            refusals.append(f"{source}: {type(error).__name__} {error}")
            continue
        return case.with_dtype(dtype)
    raise AssertionError(f"model '{name}' reads the data of no embedded source; add one\n" + "\n".join(refusals))


def _read_embedded(source: str) -> Any:
    """Return the dataset of a source that needs no files, at its default options, else None."""
    from bayesmesh.config.registry import component_path, load_component, read_options
    from bayesmesh.data.base import Source

    source_class = load_component("source", source)
    if source_class.fetch is not Source.fetch:
        return None
    return source_class(read_options(component_path("source", source))()).read(Path("nowhere"))


@pytest.fixture(scope="session")
def make_target() -> Callable[..., Any]:
    """Return a function of (case, num_devices, row_tile) that binds a case's model to the shape of its data."""

    def make(case: Case, num_devices: int = 1, row_tile: int = NUM_ROWS) -> Any:
        from bayesmesh.sampling.density import Target
        from bayesmesh.sampling.rows import lay_out_rows

        layout = lay_out_rows(case.spec.num_rows, num_devices, row_tile, case.spec.entry_counts)
        return Target(case.model, case.spec, layout)

    return make


@dataclasses.dataclass(frozen=True)
class Run:
    """What the programs of a chain group gave: states, draws, and statistics of as many iterations as were asked for."""

    warmup_state: Any
    warmup_statistics: Mapping[str, np.ndarray]
    state: Any
    statistics: Mapping[str, np.ndarray]
    draws: Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Built:
    """A program, compiled, with its data on the devices."""

    program: Any
    compiled: Mapping[str, Any]
    data: Any

    def arguments(self, seed: int = 3, first_chain: int = 0) -> Any:
        """Return the numbers that the programs are called with."""
        from bayesmesh.sampling.program import GroupKey

        return self.program.arguments(GroupKey(seed, first_chain))

    def run(
        self, num_draws: int, seed: int = 3, first_chain: int = 0, segment: int = 0, *, is_through_host: bool = False
    ) -> Run:
        """Go from the start to as many draws, in segments of `segment` iterations where that is given.

        Args:
            is_through_host: whether every segment begins from a checkpoint, with the leaves of the state on the host.
        """
        import jax

        arguments, warmup = self.arguments(seed, first_chain), self.program.sampling.warmup
        begin = self.compiled["initialise"](arguments, self.data)
        warm, warmup_statistics, _ = self.go(arguments, begin, 0, warmup, segment, is_through_host=is_through_host)
        state, statistics, draws = self.go(arguments, warm, warmup, num_draws, segment, is_through_host=is_through_host)
        return Run(jax.device_get(warm), warmup_statistics, jax.device_get(state), statistics, draws)

    def go(
        self, arguments: Any, state: Any, first: int, wanted: int, segment: int = 0, *, is_through_host: bool = False
    ) -> tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Make `wanted` iterations from absolute iteration `first`; returns state, statistics and draws."""
        import jax
        import numpy as np

        parts, done = [], 0
        while done < wanted or not parts:
            count = min(segment or self.program.slice_draws, wanted - done)
            given = self.program.state_to_device(checkpoint(state)) if is_through_host else state
            state, statistics, draws = self.compiled["segment"](
                arguments, self.data, given, np.uint32(first + done), np.int32(count)
            )
            cut = {k: np.asarray(v)[:count] for k, v in statistics.items()}
            parts.append((cut, self.program.draws_to_host(draws, count)))
            done += count
        return state, *jax.tree.map(lambda *x: np.concatenate(x), *parts)


def checkpoint(state: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a state by name, on the host, as the store keeps them."""
    import jax
    import numpy as np

    from bayesmesh.sampling.program import name_leaves

    return dict(zip(name_leaves(state), map(np.asarray, jax.tree.leaves(state)), strict=True))


@pytest.fixture(scope="session")
def build() -> Callable[..., Built]:
    """Return a function of (case, kernel name, ...) that compiles the programs of a chain group over a mesh.

    What differs in the numbers that are arguments of programs alone is compiled once in a session.
    """
    return _build


_COMPILED: dict[Any, Mapping[str, Any]] = {}


def _build(
    case: Case,
    kernel: str,
    *,
    num_chains: int = 4,
    num_warmup: int = 20,
    most_draws: int = 32,
    mesh: tuple[int, int] = (1, 1),
    row_tile: int = NUM_ROWS,
    initial: Mapping[str, Any] | None = None,
    sharding: str = "named",
    is_optimised: bool = True,
    **kernel_options: Any,
) -> Built:
    from bayesmesh.sampling.program import PROGRAMS

    program = _make_program(
        case, kernel, num_chains, num_warmup, most_draws, mesh, row_tile, initial or {}, kernel_options, sharding
    )
    key = (
        case.model_class, case.spec.num_rows, case.spec.entry_counts, case.spec.dtype, repr(case.spec.fields),
        repr(case.spec.constants), _constants(case.options), kernel, _constants(program.kernel.options), num_chains,
        most_draws, mesh, row_tile, program.sampling.initial.method, program.sampling.initial.steps, sharding,
        is_optimised,
    )  # fmt: skip
    if key not in _COMPILED:
        options = {"xla_backend_optimization_level": 3 if is_optimised else 0}
        _COMPILED[key] = {name: program.trace(name).lower().compile(options) for name in PROGRAMS}
    return Built(program, _COMPILED[key], program.put_data(case.rows))


def _constants(options: Any) -> str:
    """The options that are compiled in; tests/unit/sampling/test_arguments.py shows that no other ones are."""
    from bayesmesh.config.settings import numeric_options

    numbers = numeric_options(options)
    return repr({k: v for k, v in options.model_dump().items() if k not in numbers})


@pytest.fixture(scope="session")
def make_program() -> Callable[..., Any]:
    """Return a function of (case, kernel, num_chains, num_warmup, most_draws, mesh, row_tile, initial, options, sharding)."""
    return _make_program


def _make_program(
    case: Case,
    kernel: str,
    num_chains: int = 4,
    num_warmup: int = 20,
    most_draws: int = 32,
    mesh: tuple[int, int] = (1, 1),
    row_tile: int = NUM_ROWS,
    initial: Mapping[str, Any] | None = None,
    kernel_options: Mapping[str, Any] | None = None,
    sharding: str = "named",
) -> Any:
    import jax
    from jax.sharding import AxisType

    from bayesmesh.config.blocks import SamplingSettings
    from bayesmesh.config.registry import component_path, load_component, read_options
    from bayesmesh.sampling.collective import make_target
    from bayesmesh.sampling.mesh import CHAIN_AXIS, DATA_AXIS
    from bayesmesh.sampling.program import Program
    from bayesmesh.sampling.rows import lay_out_rows

    devices = jax.devices()[: mesh[0] * mesh[1]]
    placed = jax.make_mesh(mesh, (CHAIN_AXIS, DATA_AXIS), axis_types=(AxisType.Auto,) * 2, devices=devices)
    options = read_options(component_path("kernel", kernel))(**(kernel_options or {}))
    sampling = SamplingSettings.model_validate({"chains": num_chains, "warmup": num_warmup, "initial": initial or {}})
    layout = lay_out_rows(case.spec.num_rows, mesh[1], row_tile, case.spec.entry_counts)
    target = make_target(case.model, case.spec, layout, placed, sharding)
    return Program(
        target, load_component("kernel", kernel)(options, num_warmup), placed, sampling, num_chains, most_draws
    )
