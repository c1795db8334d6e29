"""Export: a folded graph has plain activations and no signs, and onnxruntime computes what torch does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bipolar
from bipolar.models import CharRNN, WideResNet

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

# raised within torch and onnxscript
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def operations(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_a_folded_network_has_no_signs(tmp_path: Path) -> None:
    model = WideResNet(10, 1, dropout=0.2).train()
    x = torch.randn(2, 3, 8, 8)
    path = bipolar.export_onnx(model, x, tmp_path / "model.onnx")
    found = operations(path)
    assert found.count("Relu") == 7
    assert not set(found) & {"Mul", "Neg", "Where", "Sign", "Min", "Max", "Dropout"}
    assert model.training
    assert list(tmp_path.iterdir()) == [path]
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    many = torch.randn(5, 3, 8, 8)  # another number of images
    (output,) = session.run(None, {session.get_inputs()[0].name: many.numpy()})
    torch.testing.assert_close(torch.from_numpy(output), model.eval()(many), atol=1e-5, rtol=1e-5)


def test_a_recurrent_network(tmp_path: Path) -> None:
    model = CharRNN("abcd", 8, 4, nonlinearity="belu", skip_scale=1.0)
    path = bipolar.export_onnx(model, torch.zeros(3, 2, dtype=torch.int64), tmp_path / "rnn.onnx")
    found = operations(path)
    assert found.count("Elu") == 12
    assert not set(found) & {"Neg", "Where", "Sign"}


def test_arguments_by_name_and_what_stays_bipolar(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), bipolar.BReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1))
    path = bipolar.export_onnx(model, {"input": torch.randn(2, 3, 4, 4)}, tmp_path / "model.onnx")
    assert "MaxPool" in operations(path)


def test_a_difference_is_an_error_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 8), bipolar.BELU(), nn.Linear(8, 2))
    monkeypatch.setattr("bipolar._rewrite.onnx.difference", lambda *_: "they differ by 1")
    with pytest.raises(bipolar.ExportError, match=r"they differ by 1 \(tolerance=0.0001\); nothing was written"):
        bipolar.export_onnx(model, torch.randn(3, 4), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ModuleNotFoundError, match=r"export_onnx needs onnxruntime: pip install 'bipolar\[onnx\]'"):
        bipolar.export_onnx(nn.Linear(2, 2), torch.ones(1, 2), tmp_path / "model.onnx")


class Sequence(nn.Module):
    """Layers on (batch, time, features), and a mask that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), bipolar.BReLU(dim=-1), nn.Linear(8, 2))

    def forward(self, x: Tensor, scale: Tensor, unused: Tensor | None = None) -> Tensor:
        return scale * self.layers(x).cumsum(1)


def test_the_length_of_sequences_is_dynamic(tmp_path: Path) -> None:
    import onnxruntime

    model, scale = Sequence(), torch.tensor(2.0)
    example = {"x": torch.randn(2, 5, 4), "scale": scale, "unused": torch.ones(3)}
    path = bipolar.export_onnx(model, example, tmp_path / "model.onnx", dynamic={"x": (0, -2)})
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    longer = torch.randn(3, 9, 4)
    given = {"x": longer.numpy(), "scale": scale.numpy(), "unused": torch.ones(3).numpy()}
    (output,) = session.run(None, {node.name: given[node.name] for node in session.get_inputs()})
    torch.testing.assert_close(torch.from_numpy(output), model(longer, scale), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="dynamic: the example has no argument y; it has x, scale, unused"):
        bipolar.export_onnx(model, example, tmp_path / "model.onnx", dynamic={"y": (0,)})


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("Found conflicts between user-specified ranges and inferred ranges", "dynamic names a dimension whose size"),
        (
            "Found <class 'Own'> in output, which is not a known type. If",
            "'Own'> in output, which is not a known type$",
        ),
        ("", "torch cannot export Linear: RuntimeError$"),
    ],
)
def test_what_hinders_an_export_is_named(
    error: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        try:
            raise RuntimeError(error)
        except RuntimeError as cause:
            raise ValueError("step 1/3 of exporting the model") from cause

    monkeypatch.setattr(torch.onnx, "export", fail)
    with pytest.raises(bipolar.ExportError, match=message):
        bipolar.export_onnx(nn.Linear(2, 2), torch.ones(1, 2), tmp_path / "model.onnx", dynamic=(0, 1))
    assert not list(tmp_path.iterdir())


def test_a_cache_is_named(tmp_path: Path) -> None:
    class SomeCache:
        def __init__(self, x: Tensor) -> None:
            self.x = x

    class Cached(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return 2 * x, SomeCache(x)

    with pytest.raises(bipolar.ExportError, match=r"it gives out a SomeCache, .*: add use_cache=False to the example"):
        bipolar.export_onnx(Cached(), torch.ones(2, 3), tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("dynamic", "message"), [(True, "expected dimensions"), ("batch", "expected dimensions"), ({0: (0,)}, "argument 0")]
)
def test_dynamic_says_what_it_takes(tmp_path: Path, dynamic: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"dynamic: .*{message}"):
        bipolar.export_onnx(nn.Linear(2, 2), torch.randn(3, 2), tmp_path / "model.onnx", dynamic=dynamic)
