"""Sign symmetry between bipolar and plain networks, followed through a model."""

from bipolar._symmetry.analysis import Analysis, analyse, symmetry
from bipolar._symmetry.report import SymmetryReport, SymmetryRow

__all__ = ["Analysis", "SymmetryReport", "SymmetryRow", "analyse", "symmetry"]
