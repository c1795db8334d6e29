"""Model files: safetensors for the weights, JSON for the configuration, by the mixin of huggingface_hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from huggingface_hub import PyTorchModelHubMixin
else:
    try:
        from huggingface_hub import PyTorchModelHubMixin
    except ModuleNotFoundError:

        class PyTorchModelHubMixin:
            """In its place where it is not installed."""

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

    Else a layer that it does not have would be left at random without a word.
    """

    def _save_pretrained(self, save_directory: Path) -> None:
        """Refuses a model that its configuration does not describe any more, such as one that is partly folded."""
        with torch.device("meta"):
            described = type(self)(**getattr(self, "_hub_mixin_config", {}))
        if repr(described) != repr(self):
            raise ValueError(
                f"{type(self).__name__}: its modules are not those that its configuration makes, so from_pretrained "
                "could not make them again; save its state_dict instead"
            )
        super()._save_pretrained(save_directory)

    @classmethod
    def _from_pretrained(cls, *, strict: bool = True, **kwargs: Any) -> Any:
        return super()._from_pretrained(strict=strict, **kwargs)


__all__ = ["HubMixin"]
