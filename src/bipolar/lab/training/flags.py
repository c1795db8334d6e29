"""Types of the command's flags, for settings without a value of their own."""

from pathlib import Path
from typing import Annotated, TypeAlias

import tyro

# The help would say "(default: None)" after a text that names the real default.
PathFlag: TypeAlias = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]
IntFlag: TypeAlias = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
FloatFlag: TypeAlias = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
TextFlag: TypeAlias = Annotated[str | None, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")]

#: The names of ``bipolar.list_activations()``, for the help, which does not wait for torch; a test compares.
ACTIVATIONS = (
    "bcelu, belu, bgelu, bhardswish, bleaky_relu, bmish, bprelu, brelu, brelu6, brrelu, bselu, bsilu, "
    "bsoftplus, celu, crelu, elu, gelu, hardshrink, hardsigmoid, hardswish, hardtanh, identity, leaky_relu, "
    "logsigmoid, mish, oplu, prelu, relu, relu6, rrelu, selu, sigmoid, silu, softplus, softshrink, softsign, "
    "tanh, tanhshrink"
)

ActivationFlag: TypeAlias = Annotated[
    str, tyro.conf.arg(metavar="NAME", help=f"The activation function: {ACTIVATIONS}.")
]
