"""Train deep neural networks without normalisation layers."""

from typing import TYPE_CHECKING

from bipolar._tools.on_demand import on_demand

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bipolar import models as models
    from bipolar._public import *  # noqa: F403 - all that it has
    from bipolar.models import load as load
else:
    # The command answers before torch, which takes seconds, is imported; and models need the packages of model files.
    __getattr__, __dir__ = on_demand(__name__, {"_public": None, "models": ("load",)})
