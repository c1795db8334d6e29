"""Items: tables, figures and studies as declarations.

A :class:`Training` names its runs and turns their outcomes into results; a :class:`Computation` computes its results
without runs. Both say what the paper published, which claims the results decide, and how to show them. Running,
resuming, sharing runs, drawing and reporting work the same for every item, see
:mod:`bipolar.lab.reproduce.reproduction`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bipolar.lab.reproduce.outcomes import Outcome, Results
from bipolar.lab.reproduce.scales import Scale
from bipolar.lab.reproduce.tables import Table
from bipolar.lab.reproduce.trials import versions
from bipolar.lab.reproduce.verdicts import Claim
from bipolar.lab.training.config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Item:
    """A table, figure or study."""

    name: str
    #: its place in the paper, and its subject
    title: str
    #: the method, and the meaning of the names in it, for readers of the report
    about: str = ""
    #: the paper's numbers, or its statement
    published: Mapping[str, Any] = field(default_factory=dict)
    #: what to see in the picture
    caption: str = ""
    #: the picture, from the results of each seed
    draw: Callable[[Sequence[Results]], Figure] | None = None
    #: tables, from the results of each seed
    tables: Callable[[Sequence[Results]], Sequence[Table]] | None = None
    #: what the results show, in sentences, from those of each seed
    shows: Callable[[Sequence[Results]], str] | None = None
    #: claims that its results decide
    claims: Sequence[Claim] = ()
    #: the name of an item that belongs to it, and is reproduced with it
    beside: str | None = None


@dataclass(frozen=True, kw_only=True)
class Training(Item):
    """An item that trains."""

    #: the runs by name, with the first seed; one may ``start`` from the weights of a run before it, by that one's name
    runs: Callable[[Scale], Mapping[str, RunConfig]]
    #: the results of one seed, from the outcomes of its runs
    collect: Callable[[Mapping[str, Outcome]], Results]
    #: the default number of seeds
    seeds: Mapping[Scale, int] = field(default_factory=lambda: {"quick": 1, "small": 3, "paper": 3})
    #: the candidate that a run is a version of, by the run's name: of its versions, such as several learning rates,
    #: only the best with the first seed has the other seeds. Default: each run is one of its own
    candidate: Callable[[str], str] = str

    def expected_runs(self, scale: Scale, seeds: int | None = None) -> list[RunConfig]:
        """A configuration for each run: all with the first seed, and one version of each candidate with the others."""
        configs, others = self.runs(scale), (self.seeds[scale] if seeds is None else seeds) - 1
        repeated = [configs[names[0]] for names in versions(configs, self.candidate).values()]
        return [*configs.values(), *others * repeated]


@dataclass(frozen=True, kw_only=True)
class Computation(Item):
    """An item without training runs."""

    #: the results, from the scale and the data directory
    compute: Callable[[Scale, Path | None], Results]
    #: its settings at a scale, for the record
    configuration: Callable[[Scale], Mapping[str, Any]] = lambda scale: {}
