"""Places of activations in a model: modules of their own, and attributes of recurrent stacks and transformer layers."""

from torch import nn

from bipolar._activations import catalogue
from bipolar._activations.recognition import RecognisedActivation, recognise_module
from bipolar._rewrite.replacement import replaced, set_activation
from bipolar._rnn import StackedRNN

TRANSFORMER_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
#: Modules that have an activation as an attribute, with its features in the last dimension.
HOLDERS = (StackedRNN, *TRANSFORMER_LAYERS)


def held_by(module: nn.Module) -> RecognisedActivation | None:
    """The activation that a module is, or that it holds, if it has a bipolar version."""
    activation = module.activation if isinstance(module, HOLDERS) else module
    if isinstance(activation, nn.Module):
        return recognise_module(activation)
    entry = catalogue.of_function(activation)
    return RecognisedActivation(entry.name) if entry is not None and entry.relu_family() else None


def put(model: nn.Module, module: nn.Module, made: nn.Module) -> nn.Module:
    """The model with another activation in the place of a module, or as that which the module holds."""
    if isinstance(module, StackedRNN):
        set_activation(module, made)
    elif isinstance(module, TRANSFORMER_LAYERS):
        module.activation = made.train(module.training)
        module.activation_relu_or_gelu = 0  # no fast path, which has its own activations
        for encoder in model.modules():
            if isinstance(encoder, nn.TransformerEncoder) and module in encoder.layers:
                encoder.use_nested_tensor = encoder.enable_nested_tensor = False
    else:
        return replaced(model, module, made)
    return model
