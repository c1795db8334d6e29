"""Train deep neural networks without normalisation layers."""

import importlib
from types import ModuleType

from bipolar import functional
from bipolar.activations import (
    BCELU,
    BELU,
    BGELU,
    BSELU,
    Bipolar,
    BLeakyReLU,
    BPReLU,
    BReLU,
    BRReLU,
    BSiLU,
    BSoftplus,
)
from bipolar.folding import FoldingError, fold, unfold
from bipolar.gain import gain, moments
from bipolar.init import mirrored_
from bipolar.lsuv import LSUVError, LSUVReport, lsuv_, lsuv_rnn_
from bipolar.onnx import ExportError, export_onnx
from bipolar.probe import Probe, probe
from bipolar.registry import get_activation, list_activations, register_activation
from bipolar.relatives import OPLU, CReLU
from bipolar.rnn import StackedRNN
from bipolar.surgery import ConversionReport, convert
from bipolar.symmetry import SymmetryReport, symmetry

__version__ = "0.1.0"

__all__ = [
    "BCELU",
    "BELU",
    "BGELU",
    "BSELU",
    "OPLU",
    "BLeakyReLU",
    "BPReLU",
    "BRReLU",
    "BReLU",
    "BSiLU",
    "BSoftplus",
    "Bipolar",
    "CReLU",
    "ConversionReport",
    "ExportError",
    "FoldingError",
    "LSUVError",
    "LSUVReport",
    "Probe",
    "StackedRNN",
    "SymmetryReport",
    "convert",
    "export_onnx",
    "fold",
    "functional",
    "gain",
    "get_activation",
    "list_activations",
    "lsuv_",
    "lsuv_rnn_",
    "mirrored_",
    "models",
    "moments",
    "probe",
    "register_activation",
    "symmetry",
    "unfold",
]


def __getattr__(name: str) -> ModuleType:
    """``bipolar.models``, imported when first asked for: it takes what reads and writes model files along."""
    if name == "models":
        return importlib.import_module("bipolar.models")
    raise AttributeError(f"module 'bipolar' has no attribute {name!r}")
