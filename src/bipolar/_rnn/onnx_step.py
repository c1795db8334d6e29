"""A step of a stack in onnxruntime, whose products of matrix and vector read the weights faster than torch's do."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from bipolar._activations import catalogue
from bipolar._activations.recognition import kernel_of
from bipolar._rnn.blocks import Blocks

#: ONNX operators of plain activations, by name, and the names of their attributes among our arguments.
OPERATORS: dict[str, tuple[str, dict[str, str]]] = {
    "relu": ("Relu", {}),
    "elu": ("Elu", {"alpha": "alpha"}),
    "celu": ("Celu", {"alpha": "alpha"}),
    "selu": ("Selu", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": "negative_slope"}),
    "tanh": ("Tanh", {}),
}
#: from which on Split divides evenly
OPSET = 18
#: The bytes of weights that a model may have: protobuf ends at 2 GiB, of which the nodes need some.
LARGEST = 2_000_000_000

Advance = Callable[[Tensor, Tensor], Tensor]


def refusal(activation: object, parameters: Sequence[Tensor]) -> str | None:
    """The reason why a stack with this activation and these parameters cannot step in onnxruntime, if any."""
    like, size = parameters[0], sum(p.numel() * p.element_size() for p in parameters)
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        return f"it needs {' and '.join(missing)}: pip install 'bipolar[onnx]'"
    if like.dtype != torch.float32 or like.device.type != "cpu":
        return f"it takes float32 on a CPU, and the weights are {like.dtype} on {like.device}"
    entry = catalogue.of_class(type(activation))
    if entry is None or entry.name not in OPERATORS or kernel_of(activation) is None:
        return f"it has no operator for {type(activation).__name__}"
    if size > LARGEST:
        return f"its model holds {LARGEST:,} bytes, and the weights are {size:,}"
    return None


def onnx_step(model: bytes) -> Advance:
    """A function from the input (batch, input_size) and the states before to those after, (layers, batch, units)."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.force_spinning_stop", "1")  # leave the cores to others between steps
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def advance(input: Tensor, before: Tensor) -> Tensor:
        if not len(input):
            return before.clone()
        rows = before.reshape(-1, before.size(2))  # those of layer i begin at i times the batch
        (states,) = session.run(None, {"input": input.numpy(), "before": rows.numpy()})
        return torch.from_numpy(states).view_as(before)

    return advance


def step_model(
    us: Sequence[Tensor],
    ws: Sequence[Tensor],
    bs: Sequence[Tensor],
    blocks: Blocks,
    skip_scale: float,
    activation: object,
) -> bytes:
    """The ONNX model of a step: layer by layer one product, of U and W side by side with the input above the state.

    The weights have their signs folded in, so that the activation is the plain one of ``activation``.
    """
    from onnx import TensorProto, helper, numpy_helper

    entry: Any = catalogue.of_class(type(activation))
    operator, names = OPERATORS[entry.name]
    given = entry.options_of_module(activation)
    attributes: Any = {name: float(given[argument]) for name, argument in names.items()}
    layers, units, inputs = len(us), us[0].size(0), us[0].size(1)
    constants = []
    if any(blocks.has_skip(i) for i in range(layers)):
        constants.append(numpy_helper.from_array(torch.tensor([skip_scale]).numpy(), "skip_scale"))
    nodes = [
        helper.make_node("Split", ["before"], [f"before{i}" for i in range(layers)], axis=0, num_outputs=layers),
    ]
    x = block_input = "input"
    states = []
    for i, (u, w, b) in enumerate(zip(us, ws, bs, strict=True)):
        weight = torch.cat((u, w), dim=1).mT.contiguous()
        constants += [numpy_helper.from_array(weight.numpy(), f"w{i}"), numpy_helper.from_array(b.numpy(), f"b{i}")]
        if blocks.starts(i):
            block_input = x
            if any(blocks.has_skip(j) for j in range(i, i + (blocks.every or 1))):
                nodes.append(helper.make_node("Mul", [x, "skip_scale"], [f"skip{i}"]))
                block_input = f"skip{i}"
        nodes += [
            helper.make_node("Concat", [x, f"before{i}"], [f"both{i}"], axis=1),
            helper.make_node("Gemm", [f"both{i}", f"w{i}", f"b{i}"], [f"z{i}"]),
            helper.make_node(operator, [f"z{i}"], [f"f{i}"], **attributes),
        ]
        x = f"f{i}"
        if blocks.has_skip(i):
            nodes.append(helper.make_node("Add", [x, block_input], [f"h{i}"]))
            x = f"h{i}"
        states.append(x)
    nodes.append(helper.make_node("Concat", states, ["after"], axis=0))
    graph = helper.make_graph(
        nodes,
        "step",
        [
            helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", inputs]),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, ["rows", units]),
        ],
        [helper.make_tensor_value_info("after", TensorProto.FLOAT, ["rows", units])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    serialised: bytes = model.SerializeToString()
    return serialised
