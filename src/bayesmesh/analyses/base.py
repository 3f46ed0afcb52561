"""The contract of an analysis: its inputs from finished experiments, its outputs, and their presentation.

An analysis is one file ``analyses/<name>.py`` or one folder ``analyses/<name>/`` with its class in ``analysis.py``. Its
name is the key with which an experiment requests it. The class attributes below are read from the source text, so they
must be literals. Page and index load the class without JAX, so import modules that compute inside `Analysis.run` and
`Analysis.check`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from bayesmesh.config.settings import Settings
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import ConfigError
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior, open_posterior

if TYPE_CHECKING:
    from bayesmesh.analyses.figures.sections import Section
    from bayesmesh.data.base import DataSpec
    from bayesmesh.data.shards import Shards
    from bayesmesh.models.base import Model

Shapes = Mapping[str, np.ndarray]
"""Latent -> placeholder with shape and dtype of one draw: an array whose values are unused, or `jax.ShapeDtypeStruct`."""


class BoundModel(NamedTuple):
    """The data of an experiment, and its model bound to them.

    Attributes:
        model: model of the experiment, with its options.
        data_spec: specification of the training data, in the dtype of the experiment.
        shards: training rows, test rows, held-out cells, and names of columns.
    """

    model: Model
    data_spec: DataSpec
    shards: Shards


class Subject:
    """One experiment as read by an analysis; everything is opened on first use.

    Args:
        layout: the files of the experiment.
        bind: opens the data and binds the model to them; None if the analysis does not read them.
        image_shape: rows and columns of the image in the field ``features``; None if the field holds no image.
        reads_posterior: whether the analysis declares that it reads the draws.
    """

    def __init__(
        self,
        layout: ExperimentLayout,
        bind: Callable[[], BoundModel] | None = None,
        image_shape: tuple[int, int] | None = None,
        *,
        reads_posterior: bool = True,
    ) -> None:
        self.layout, self._bind, self.image_shape = layout, bind, image_shape
        self._reads_posterior = reads_posterior

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.layout.experiment

    @property
    def verdict(self) -> str:
        """The verdict on its chains; ``unknown`` before they are diagnosed."""
        return read_verdict(self.layout.verdict).verdict if self.layout.verdict.exists() else "unknown"

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The draws; needs ``"posterior"`` in `Analysis.reads`.

        Raises:
            ConfigError: the analysis does not declare that it reads them, so that other draws would not run it again.
        """
        if not self._reads_posterior:
            raise ConfigError("the analysis reads draws without declaring it", "add 'posterior' to its `reads`")
        return open_posterior(self.layout.posterior)

    @functools.cached_property
    def bound(self) -> BoundModel:
        """Model and data; needs ``"data"`` in `Analysis.reads`.

        Raises:
            ConfigError: the analysis does not declare that it reads them.
        """
        if self._bind is None:
            raise ConfigError("the analysis reads data without declaring it", "add 'data' to its `reads`")
        return self._bind()


class Analysis(ABC):
    """Base class of an analysis, constructed with its options.

    Attributes:
        pretty_name: heading of its section.
        outputs: names of its output files, such as ``scores.csv``. The first is a file; names that end in ``.zarr`` are
            folders.
        verb: name of its rule and its command-line verb; the name of the analysis by default.
        folder: folder of its outputs, within that of the experiment; the name of the analysis by default.
        message: message of the workflow, containing ``{experiment}``.
        reads: inputs from each experiment: any of ``posterior``, ``data`` (shards and the model) and ``verdict``
            (the tables of the diagnose stage). Changes of other inputs do not run it again.
        needs_of_source, needs_of_model: entries required in ``offers`` of the data source and the model. An experiment
            whose components lack one is refused before any job starts.
        checks_model: whether its section assesses the fit of the model; pages name it where no such check was requested.
        options: its settings. If they have a field ``experiments``, a tuple of names, the analysis also reads these
            experiments.
    """

    pretty_name: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]]
    verb: ClassVar[str]
    folder: ClassVar[str]
    message: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("posterior", "data")
    needs_of_source: ClassVar[tuple[str, ...]] = ()
    needs_of_model: ClassVar[tuple[str, ...]] = ()
    checks_model: ClassVar[bool] = False
    options: Settings

    def __init__(self, options: Settings) -> None:
        self.options = options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Check that data and model support the analysis, before sampling and without computing anything.

        Args:
            bound: model and data of the experiment.
            latents: name -> shape and dtype of one draw.

        Raises:
            ConfigError: they do not; the message names the key.
        """
        del bound, latents

    @abstractmethod
    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Read draws, compute, write all outputs, and return a line for the log.

        Args:
            subject: the experiment that requests the analysis.
            others: name -> experiment, for those named in `options`, in their order.
            files: output -> path, in an existing folder. Write each atomically (`bayesmesh.files`).

        Raises:
            ConfigError: data or model do not support it; the message names the key.
            StoreError: an input is damaged.
        """

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Return the section of the page, built from the outputs alone; None if there is nothing to show.

        Args:
            files: output -> path, all written by `run`.

        Raises:
            StoreError: a file is missing or damaged.
        """
        del files
        return None

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the text for the index's column of scores; empty if there is none.

        Args:
            files: output -> path, all written by `run`.

        Raises:
            StoreError: a file is missing or damaged.
        """
        del files
        return ""


def unsuitable(key: str, problem: str) -> ConfigError:
    """Return the error for data or a model that an analysis cannot use."""
    return ConfigError(f"key '{key}': {problem}", f"remove the key '{key}' from the experiment")


def check_chosen(key: str, kind: str, chosen: Sequence[int], number: int) -> None:
    """Check that chosen rows or columns of a watch matrix exist.

    Args:
        key: the key with which they were chosen.
        kind: what each is, such as ``film``.
        chosen: their positions.
        number: how many there are.

    Raises:
        ConfigError: some do not exist; the message names them.
    """
    if outside := [place for place in chosen if not 0 <= place < number]:
        problem = f"no {kind} {', '.join(map(str, outside))}; there are {kind}s 0 to {number - 1}"
        raise ConfigError(f"key '{key}': {problem}", f"{kind}s are counted from 0, in the order of the source")


@contextlib.contextmanager
def asking_model(key: str, model: Model, fields: Sequence[str]) -> Iterator[None]:
    """Convert the errors of a model that cannot use the rows into a ConfigError of the analysis.

    Args:
        key: name of the analysis.
        model: the model called inside the block.
        fields: names of the fields passed to it.

    Raises:
        ConfigError: the model does not predict, or asks for a field that the rows lack.
    """
    try:
        yield
    except NotImplementedError as error:
        raise unsuitable(key, str(error)) from error
    except KeyError as error:
        listed = ", ".join(sorted(fields))
        raise unsuitable(key, f"model {type(model).__name__} asks for {error}; the rows have {listed}") from error


def check_predictive[T](key: str, model: Model, predictive: object, kind: type[T], num_axes: int, needed: str) -> T:
    """Return a predictive distribution after checking its kind and the number of axes of its batch shape.

    Raises:
        ConfigError: either differs; `needed` ends the message.
    """
    shape = tuple(getattr(predictive, "batch_shape", ()))
    if not isinstance(predictive, kind) or len(shape) != num_axes:
        found = f"{type(predictive).__name__} with batch shape {shape}"
        raise unsuitable(key, f"model {type(model).__name__} predicts {found}; {needed}")
    return predictive


def draw_shapes(posterior: Posterior, dtype: str) -> Shapes:
    """Return shape and dtype of every latent of one stored draw, with floating-point latents in `dtype`."""
    arrays = {latent: posterior.array("posterior", latent) for latent in posterior.latents}
    # A broadcast scalar takes no memory, whatever its shape.
    return {
        latent: np.broadcast_to(np.zeros((), dtype if array.dtype.kind == "f" else array.dtype), array.shape[2:])
        for latent, array in arrays.items()
    }


def cut_tiles(rows: np.ndarray, tile_rows: int) -> np.ndarray:
    """Return row numbers, (rows,), as (tiles, rows of a tile); the end is padded by repeating the last row.

    >>> cut_tiles(np.arange(5), 4)
    array([[0, 1, 2],
           [3, 4, 4]])
    """
    num_tiles = math.ceil(len(rows) / tile_rows)
    tile_rows = math.ceil(len(rows) / num_tiles)
    return np.pad(rows, (0, num_tiles * tile_rows - len(rows)), mode="edge").reshape(num_tiles, tile_rows)
