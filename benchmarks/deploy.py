"""A network with batch norm beside the same without, folded and exported: the time of an answer.

Both run in PyTorch, in evaluation mode, and in onnxruntime, which merges batch norm into the convolution before it
where there is one. In a residual network with pre-activation half of the batch norms stand after an addition, where
nothing can take them. The residual network without norms has bipolar activations, and is folded to plain ones; the
other one has plain ones, because max pooling does not let signs through.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime
import torch
from torch import Tensor, nn

import bipolar
from benchmarks.common import best_of, machine, markdown_table, record, timed

#: each with batch norm, and without
NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "WideResNet-16-2": (
        lambda: bipolar.models.WideResNet(16, 2, activation="relu", norm="batch"),
        lambda: bipolar.models.WideResNet(16, 2, activation="brelu"),
    ),
    "ConvNet, k = 2": (
        lambda: bipolar.models.ConvNet(2, activation="relu", norm="batch"),
        lambda: bipolar.models.ConvNet(2, activation="relu"),
    ),
}
BATCHES = (1, 32)


def in_torch(model: nn.Module, images: Tensor) -> Callable[[], object]:
    def run() -> None:
        with torch.no_grad():
            model(images)

    return run


def in_onnxruntime(path: Path, images: Tensor) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # threads that wait busily would take their cores from whatever is timed next
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: images.numpy()}
    return lambda: session.run(None, given)


def optimised_nodes(path: Path) -> int:
    """The number of nodes that are left once onnxruntime has optimised a graph."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path.with_suffix(".optimised.onnx"))
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return len(onnx.load(options.optimized_model_filepath).graph.node)


def rows_of(name: str, folder: Path) -> list[list[str]]:
    torch.manual_seed(0)
    images = torch.randn(max(BATCHES), 3, 32, 32)
    with_norm, without = (make().eval() for make in NETWORKS[name])
    bipolar.lsuv_(without, images)
    models = {"batch norm": with_norm, "no norm, folded": bipolar.fold(without, images[:2]).eval()}
    paths = {kind: bipolar.export_onnx(model, images[:2], folder / f"{kind}.onnx") for kind, model in models.items()}
    rows = []
    for batch in BATCHES:
        runs = [in_torch(models[kind], images[:batch]) for kind in models]
        runs += [in_onnxruntime(paths[kind], images[:batch]) for kind in models]
        times = [1000 * seconds for (seconds,) in best_of([timed(run, repeats=10) for run in runs], 5, 10)]
        for i, kind in enumerate(models):
            ratios = [times[i] / times[0], times[2 + i] / times[2]]
            numbers = [f"{times[i]:.2f}", f"{ratios[0]:.2f}", f"{times[2 + i]:.2f}", f"{ratios[1]:.2f}"]
            rows.append([name, kind, str(batch), *numbers, str(optimised_nodes(paths[kind]))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the table into benchmarks/README.md too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for name in NETWORKS for row in rows_of(name, Path(folder))]
    header = ["network", "norm", "batch", "torch, ms", "ratio", "onnxruntime, ms", "ratio", "nodes"]
    text = f"{machine()}; float32, images of 32x32 pixels.\n\n{markdown_table(header, rows)}"
    print(text)
    if arguments.record:
        record("deploy", text)


if __name__ == "__main__":
    main()
