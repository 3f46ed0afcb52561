"""The contract of an analysis: what it reads of finished experiments, what it writes, and how that is shown.

An analysis is one file ``analyses/<name>.py`` or one folder ``analyses/<name>/`` with its class in ``analysis.py``. Its
name is the key of an experiment that asks for it. The class attributes below are read from the source text, so they are
literals. Page and index load the class too, and do not load JAX: what computes is imported inside of `Analysis.run` and
`Analysis.check`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from bayesmesh.errors import ConfigError
from bayesmesh.figures.sections import Section
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior_reader import Posterior, open_posterior

if TYPE_CHECKING:
    from bayesmesh.data.base import DataSpec
    from bayesmesh.data.shards import Shards
    from bayesmesh.models.base import Model

__all__ = ["Analysis", "BoundModel", "Subject"]


class BoundModel(NamedTuple):
    """The data of an experiment, and its model bound to them.

    Attributes:
        model: of the experiment, with its options.
        data_spec: of the training data, in the dtype of the experiment.
        shards: training rows, test rows, held-out cells, and names of columns.
    """

    model: Model
    data_spec: DataSpec
    shards: Shards


class Subject:
    """One experiment, as an analysis reads it. Everything is opened when it is first asked for.

    Args:
        layout: the files of the experiment.
        bind: opens the data and binds the model to them; None where the analysis does not read them.
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
            raise ConfigError("the analysis reads data that it does not declare", "add 'data' to its `reads`")
        return self._bind()


class Analysis(ABC):
    """One analysis, made with its options.

    Attributes:
        pretty_name: heading of its section.
        outputs: files that it writes, such as ``scores.csv``. The first is a file; names in ``.zarr`` are folders.
        verb: its rule and its verb of the command line; the name of the analysis when left out.
        folder: where its outputs lie, below the folder of the experiment; the name of the analysis when left out.
        message: what the workflow says when it runs, with ``{experiment}`` in it.
        reads: what it reads of each experiment, out of ``posterior``, ``data`` (shards and the model) and ``verdict``
            (the tables of the diagnose stage). A change of anything else does not run it again.
        needs_of_source, needs_of_model: words that the class of a data source or a model lists in ``offers``. An
            experiment whose components lack one is refused before any job starts.
        options: its settings. With a field ``experiments``, a tuple of names, it also reads these experiments.
    """

    pretty_name: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]]
    verb: ClassVar[str]
    folder: ClassVar[str]
    message: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("posterior", "data")
    needs_of_source: ClassVar[tuple[str, ...]] = ()
    needs_of_model: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: Any) -> None:
        self.options = options

    def check(self, bound: BoundModel, latents: Mapping[str, Any]) -> None:
        """Hold data and model to the analysis before anything is sampled; nothing is computed.

        Args:
            bound: model and data of the experiment.
            latents: name -> shape and dtype of one draw (`jax.ShapeDtypeStruct`).

        Raises:
            ConfigError: they do not go with it; names the key.
        """
        del bound, latents

    @abstractmethod
    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Read draws, compute, and write all outputs; returns a line for the log.

        Args:
            subject: the experiment that asks for the analysis.
            others: name -> experiment, of those that `options` names, in their order.
            files: output -> path. Each appears when it is complete (`bayesmesh.files`), in a folder that is there.

        Raises:
            ConfigError: data or model do not go with it; names the key.
            StoreError: what it reads is damaged.
        """

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Return the section of the page, made of the outputs alone; None where there is nothing to show.

        Args:
            files: output -> path; an output may be absent.

        Raises:
            StoreError: a file is damaged.
        """
        del files
        return None

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return what the index says in its column of scores; empty where there is nothing to say.

        Args:
            files: output -> path; an output may be absent.

        Raises:
            StoreError: a file is damaged.
        """
        del files
        return ""
