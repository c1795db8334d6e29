"""Conversion of a model: bipolar activations in, norm layers out."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar, cast

from torch import nn

from bipolar._activations.patterns import Pattern, check_pattern
from bipolar._rewrite.activation_choice import ActivationChoice, Activations, Recipe
from bipolar._rewrite.conversion import Conversion
from bipolar._rewrite.conversion_report import ConversionReport
from bipolar._rewrite.norm_recognition import NORM_FUNCTIONS, is_batch_norm, is_norm, split_norms
from bipolar._rewrite.repetition import Repetition
from bipolar._rewrite.replacement import copied
from bipolar._symmetry.example import example_for
from bipolar._symmetry.trace import record
from bipolar._tools.calling import unwrapped

RemoveNorm: TypeAlias = Literal[False, "batch", "all"] | Callable[[str, nn.Module], bool]
_Model = TypeVar("_Model", bound=nn.Module)


def convert(
    model: _Model,
    *,
    activations: Literal["auto"] | Activations = "auto",
    remove_norm: RemoveNorm = False,
    recipe: Recipe = "paper",
    pattern: Pattern = "alternate",
    inplace: bool = False,
    example: Any = None,
    dim: int | None = None,
    like: ConversionReport | Mapping[str, Any] | None = None,
) -> _Model:
    r"""A model with bipolar activations, f(x) becoming :math:`S f(S x)`, and without norm layers if they are to go.

    Every activation of the ReLU family is replaced by its bipolar version: modules, and, if an example shows where they
    are called, functions such as ``F.relu``. ``converted.conversion_report`` says what was changed and what was left.
    For a start without norm layers see :func:`~bipolar.lsuv_`.

    Args:
        model: any module; it is not changed, unless ``inplace`` is true
        activations: ``"auto"``, or a mapping from classes of modules (or names of functions, as ``"relu"``) to what
            takes their place: a name (:func:`~bipolar.list_activations`), a class of torch's, a class or function that
            makes a module from ``dim`` and ``pattern``, or None to leave them. What is not in the mapping is left.
            Default: ``"auto"``
        remove_norm: ``"batch"`` removes batch norm, ``"all"`` every norm layer, a function of a module's name and the
            module those for which it says so. A batch norm that is trained is folded into the layer beside it, so that
            outputs in evaluation mode stay the same; one that is fresh is dropped, and the layer before it gets a bias
            if it had none. Other norms are dropped, those that somebody wrote by hand as well; they are known by what
            they compute. A norm that also activates keeps its activation. Default: ``False``
        recipe: the way it will be trained. ``"paper"`` makes each activation bipolar and no more; ``"fast"``, for
            :func:`bipolar.optim.recommended`, puts BELU where ReLU, ReLU6 or leaky ReLU was, the best without norms in
            our runs. Default: ``"paper"``
        pattern: which channels are flipped, ``"alternate"`` or ``"halves"``. Default: ``"alternate"``
        inplace: change ``model`` itself. Default: ``False``
        example: an input, as for :func:`~bipolar.lsuv_`: needed to see functions, and to find the neighbours of norm
            layers and the dimension of channels (for which one is made up if the model's first layer says enough)
        dim: the dimension of the channels of all activations. Default: what the example shows, or the layers before
        like: the report of another conversion, or what its ``to_dict`` made: the same is done to this model, without
            an example. Its weights stay as they are, and new ones, of biases and of scales and shifts, change nothing

    **To save and load a converted model**, store its report beside the weights, and repeat the conversion on a new
    model before you load them::

        torch.save({"weights": model.state_dict(), "report": model.conversion_report.to_dict()}, path)
        saved = torch.load(path)
        model = bipolar.convert(build(), like=saved["report"])
        model.load_state_dict(saved["weights"])

    With the transformers library, whose ``from_pretrained`` builds the model by its class, put the report into the
    configuration before ``save_pretrained``, and convert in the constructor::

        model.config.bipolar = model.conversion_report.to_dict()

        class BipolarLlama(LlamaForCausalLM):
            def __init__(self, config):
                super().__init__(config)
                bipolar.convert(self, like=config.bipolar, inplace=True)

        model = BipolarLlama.from_pretrained(directory)

    Activations in place are made out of place where they would change a residual stream once the norm before them is
    gone.

    Examples::

        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        >>> bipolar.convert(model, remove_norm="batch")
        Sequential(
          (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
          (1): Identity()
          (2): BReLU(dim=1, inplace=True)
        )
    """
    _check_arguments(model, activations, remove_norm, recipe, pattern, dim)
    converted = unwrapped(model)
    if not inplace:
        converted = copied(converted)
    choice = ActivationChoice(activations, pattern, recipe)
    if like is not None:
        if example is not None or remove_norm is not False or dim is not None or recipe != "paper":
            raise ValueError("like: it repeats a conversion as it was; leave out example, remove_norm, recipe and dim")
        return cast(_Model, _repeated(converted, choice, like))
    return cast(_Model, _converted(converted, choice, remove_norm, example, dim))


def _check_arguments(
    model: object, activations: object, remove_norm: object, recipe: object, pattern: Pattern, dim: int | None
) -> None:
    check_pattern(pattern)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected an nn.Module, got {model!r}")
    if activations != "auto" and not isinstance(activations, Mapping):
        raise TypeError(f"activations: expected 'auto' or a mapping, got {activations!r}")
    if not (remove_norm is False or remove_norm in ("batch", "all") or callable(remove_norm)):
        raise ValueError(f"remove_norm: expected False, 'batch', 'all' or a function, got {remove_norm!r}")
    if recipe not in ("paper", "fast"):
        raise ValueError(f"recipe: expected 'paper' or 'fast', got {recipe!r}")
    if recipe == "fast" and activations != "auto":
        raise ValueError("recipe: 'fast' chooses the activations; leave out activations, or recipe")
    if dim is not None and not isinstance(dim, int):
        raise TypeError(f"dim: expected a whole number or None, got {dim!r}")


def _converted(
    model: nn.Module, choice: ActivationChoice, remove_norm: RemoveNorm, example: Any, dim: int | None
) -> nn.Module:
    chosen = [(n, m) for n, m in model.named_modules() if remove_norm and is_norm(m) and _chosen(remove_norm, n, m)]
    if example is None and not chosen:
        conversion = Conversion(model, choice, dim, None)
        conversion.report.notes.append("Functions such as F.relu are not seen without an example.")
    else:
        example = example_for(model, example)
        norms = split_norms(model, chosen, example)
        recording = record(norms.model, example)
        conversion = Conversion(norms.model, choice, dim, recording)
        conversion.remove_norms(norms, recording, example)
        if remove_norm in ("batch", "all"):
            conversion.say_norm_functions(recording, NORM_FUNCTIONS if remove_norm == "all" else {"batch_norm"})
        conversion.change_recorded(recording)
    conversion.change_others()
    conversion.finish()
    return conversion.model


def _repeated(model: nn.Module, choice: ActivationChoice, like: ConversionReport | Mapping[str, Any]) -> nn.Module:
    report = like if isinstance(like, ConversionReport) else ConversionReport.from_dict(like)
    repetition = Repetition(model, choice)
    repetition.follow(report)
    repetition.model.conversion_report = report  # type: ignore[assignment]  # to mypy it is a tensor or module
    return repetition.model


def _chosen(remove_norm: RemoveNorm, name: str, module: nn.Module) -> bool:
    if callable(remove_norm):
        return remove_norm(name, module)
    return remove_norm == "all" or (remove_norm == "batch" and is_batch_norm(module))
