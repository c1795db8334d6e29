"""Files of models: weights as safetensors and the configuration as JSON, by the mixin of huggingface_hub."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from bipolar._activations.modules import Bipolar
from bipolar._activations.recognition import recognise_module
from bipolar._activations.registry import name_of
from bipolar._tools.files import write_json

#: The files of a model.
CONFIG, WEIGHTS = "config.json", "model.safetensors"

if TYPE_CHECKING:
    from huggingface_hub import PyTorchModelHubMixin
else:
    try:
        from huggingface_hub import PyTorchModelHubMixin
    except ModuleNotFoundError:

        class PyTorchModelHubMixin:
            """Stand-in for the mixin where huggingface_hub is not installed."""

            def __init_subclass__(cls, **options: Any) -> None:
                super().__init_subclass__()

            def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
                raise ModuleNotFoundError("save_pretrained needs huggingface_hub: pip install 'bipolar[hub]'")

            push_to_hub = save_pretrained

            @classmethod
            def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
                raise ModuleNotFoundError("from_pretrained needs huggingface_hub: pip install 'bipolar[hub]'")


class HubMixin(PyTorchModelHubMixin):
    """The mixin, strict unless told otherwise: a file has to have all weights of the model, and no more.

    A layer that the file lacks would otherwise stay at its random start without a warning.
    """

    def _save_pretrained(self, save_directory: Path) -> None:
        """Refuses a model that no configuration describes, such as one that is partly folded."""
        config = getattr(self, "_hub_mixin_config", {})
        if not self._is_made_by(config):
            config = config | self._present_activation(config)
            if not self._is_made_by(config):
                raise ValueError(
                    f"{type(self).__name__}: its modules are not those that its configuration makes, so "
                    "from_pretrained could not make them again; save its state_dict instead"
                )
            self._hub_mixin_config = config
        super()._save_pretrained(save_directory)

    def save_files(self, directory: Path) -> None:
        """Writes what ``save_pretrained`` writes, without the card that is for readers of the hub."""
        directory.mkdir(parents=True, exist_ok=True)
        self._save_pretrained(directory)
        write_json(directory / CONFIG, getattr(self, "_hub_mixin_config", {}))

    def _is_made_by(self, config: dict[str, Any]) -> bool:
        with torch.device("meta"):
            return _structure(type(self)(**config)) == _structure(self)

    def _present_activation(self, config: dict[str, Any]) -> dict[str, str]:
        """The activation that the model has now, after a conversion, if all its activations are the same."""
        modules = list(cast(nn.Module, self).modules())
        inner = {id(module.f) for module in modules if isinstance(module, Bipolar)}
        names = {name_of(m) for m in modules if recognise_module(m) is not None and id(m) not in inner}
        keys = [key for key in ("activation", "nonlinearity") if key in config]
        (name,) = names if len(names) == 1 else (None,)
        return {} if name is None else dict.fromkeys(keys, name)

    @classmethod
    def _from_pretrained(cls, *, strict: bool = True, **kwargs: Any) -> Any:
        return super()._from_pretrained(strict=strict, **kwargs)


def _structure(model: Any) -> str:
    """The modules of a model in words, without the type and device of numbers, which lists of parameters have there."""
    return re.sub(r"(Parameter containing: \[)\S+ (of size [0-9x]+)[^\]]*", r"\1\2", repr(model))


__all__ = ["CONFIG", "WEIGHTS", "HubMixin"]
