"""Whether a bipolar network is a plain one with flipped weights: the sign symmetry, followed through a model."""

from bipolar.symmetry.analysis import Analysis, analyse, symmetry
from bipolar.symmetry.report import SymmetryReport, SymmetryRow

__all__ = ["Analysis", "SymmetryReport", "SymmetryRow", "analyse", "symmetry"]
