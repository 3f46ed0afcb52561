"""The contract of an analysis: its inputs from finished experiments, its outputs, and their presentation.

An analysis is one file ``analyses/<name>.py`` or one folder ``analyses/<name>/`` with its class in ``analysis.py``. Its
name is the key with which an experiment asks for it. The class attributes below are read from the source text, so they
must be literals. Page and index load the class without JAX, so import modules that compute inside `Analysis.run` and
`Analysis.check`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from bayesmesh.config.settings import Settings
from bayesmesh.errors import ConfigError
from bayesmesh.figures.sections import Section
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior_reader import Posterior, open_posterior

if TYPE_CHECKING:
    import numpy as np

    from bayesmesh.data.base import DataSpec
    from bayesmesh.data.shards import Shards
    from bayesmesh.models.base import Model

__all__ = ["Analysis", "BoundModel", "ShapeLike", "Shapes", "Subject"]


class ShapeLike(Protocol):
    """Shape and dtype of an array that was not computed, as `jax.ShapeDtypeStruct` has them."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...


Shapes = Mapping[str, ShapeLike]
"""Latent -> shape and dtype of one draw."""


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
    """

    def __init__(self, layout: ExperimentLayout, bind: Callable[[], BoundModel] | None = None) -> None:
        self.layout, self._bind = layout, bind

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.layout.experiment

    @functools.cached_property
    def posterior(self) -> Posterior:
        """The draws; needs ``"posterior"`` in `Analysis.reads`."""
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
        outputs: names of its output files, such as ``scores.csv``. The first is a file; names in ``.zarr`` are folders.
        verb: name of its rule and its verb of the command line; the name of the analysis by default.
        folder: folder of its outputs, below that of the experiment; the name of the analysis by default.
        message: message of the workflow, containing ``{experiment}``.
        reads: inputs from each experiment: any of ``posterior``, ``data`` (shards and the model) and ``verdict``
            (the tables of the diagnose stage). Other changes do not run it again.
        needs_of_source, needs_of_model: entries required in ``offers`` of the data source and the model. An experiment
            whose components lack one is refused before any job starts.
        options: its settings. If they have a field ``experiments``, a tuple of names, it also reads these experiments.
    """

    pretty_name: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]]
    verb: ClassVar[str]
    folder: ClassVar[str]
    message: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("posterior", "data")
    needs_of_source: ClassVar[tuple[str, ...]] = ()
    needs_of_model: ClassVar[tuple[str, ...]] = ()
    options: Settings

    def __init__(self, options: Settings) -> None:
        self.options = options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Check that data and model support the analysis, before sampling and without computing anything.

        Args:
            bound: model and data of the experiment.
            latents: name -> shape and dtype of one draw (`jax.ShapeDtypeStruct`).

        Raises:
            ConfigError: they do not; the message names the key.
        """
        del bound, latents

    @abstractmethod
    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Read draws, compute, write all outputs, and return a line for the log.

        Args:
            subject: the experiment that asks for the analysis.
            others: name -> experiment, for those named in `options`, in their order.
            files: output -> path, in an existing folder. Write each atomically (`bayesmesh.files`).

        Raises:
            ConfigError: data or model do not support it; the message names the key.
            StoreError: an input is damaged.
        """

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Return the section of the page, built from the outputs alone; None if there is nothing to show.

        Args:
            files: output -> path; an output may be absent.

        Raises:
            StoreError: a file is damaged.
        """
        del files
        return None

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the text for the index's column of scores; empty if there is none.

        Args:
            files: output -> path; an output may be absent.

        Raises:
            StoreError: a file is damaged.
        """
        del files
        return ""
