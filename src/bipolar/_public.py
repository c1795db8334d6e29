"""The public names of the core, apart from the models."""

from bipolar import functional, optim
from bipolar._activations.modules import (
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
from bipolar._activations.moments import gain, moments
from bipolar._activations.registry import get_activation, list_activations, register_activation
from bipolar._activations.relatives import OPLU, CReLU
from bipolar._init.lsuv import lsuv_
from bipolar._init.mirrored import mirrored_
from bipolar._init.report import LSUVError, LSUVReport
from bipolar._init.stacked import lsuv_rnn_
from bipolar._init.whitened import whitened_
from bipolar._probe.probe import Probe, probe
from bipolar._rewrite.conversion_report import ConversionReport, conversion_report
from bipolar._rewrite.convert import convert
from bipolar._rewrite.fold import FoldingError, fold, fold_report, unfold
from bipolar._rewrite.onnx import ExportError, export_onnx
from bipolar._rnn import StackedRNN
from bipolar._symmetry import SymmetryReport, symmetry

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
    "conversion_report",
    "convert",
    "export_onnx",
    "fold",
    "fold_report",
    "functional",
    "gain",
    "get_activation",
    "list_activations",
    "lsuv_",
    "lsuv_rnn_",
    "mirrored_",
    "moments",
    "optim",
    "probe",
    "register_activation",
    "symmetry",
    "unfold",
    "whitened_",
]
