"""Every function equals its definition, in value and in derivative, wherever and however it is called."""

import math
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as tF
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode

import bipolar.functional as F
from bipolar._activations import kernels
from bipolar._activations.patterns import PATTERNS, Pattern
from tests.helpers.definition import CASES, Case, by_definition

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_pattern = pytest.mark.parametrize("pattern", PATTERNS)

shapes = st.lists(st.integers(0, 5), min_size=1, max_size=5)


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def away_from_kinks(*shape: int) -> Tensor:
    """Values at least 0.05 away from 0, and no two of them close to each other, for numerical derivatives."""
    size = math.prod(shape)
    order = torch.randperm(size, generator=torch.Generator().manual_seed(1))
    return torch.linspace(-2, 2, 2 * size + 1, dtype=torch.float64)[1::2][order].view(shape).requires_grad_()


@pytest.fixture(autouse=True, params=["fast", "formula"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors take the plain formula, unless told otherwise: test both ways."""
    monkeypatch.setattr(kernels, "SMALL", 0 if request.param == "fast" else 2**16)


@every_case
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=shapes,
    dim=st.integers(0, 4),
    negative=st.booleans(),
    pattern=st.sampled_from(PATTERNS),
    seed=st.integers(0, 9),
)
def test_equals_its_definition(
    case: Case, shape: list[int], dim: int, negative: bool, pattern: Pattern, seed: int
) -> None:
    dim = dim % len(shape) - (len(shape) if negative else 0)
    x = randn(*shape, seed=seed).requires_grad_()
    grad = randn(*shape, seed=seed + 10)
    output, expected = case(x, dim=dim, pattern=pattern), by_definition(case.f, x, dim, pattern)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-14)
    if x.numel():
        torch.testing.assert_close(
            *(torch.autograd.grad(y, x, grad)[0] for y in (output, expected)), rtol=1e-10, atol=1e-13
        )


@every_case
@every_pattern
def test_the_generic_function_equals_the_named_one(case: Case, pattern: Pattern) -> None:
    x = randn(3, 5, 2)
    torch.testing.assert_close(F.bipolar(case.f, x, 1, pattern), case(x, dim=1, pattern=pattern))


@every_case
def test_the_default_dimension_is_1_or_the_only_one(case: Case) -> None:
    x = randn(3, 4, 5)
    assert torch.equal(case(x), case(x, dim=1))
    assert torch.equal(case(x[0, 0]), case(x[0, 0], dim=0))


@every_case
@every_pattern
def test_first_and_second_derivatives(case: Case, pattern: Pattern) -> None:
    x = away_from_kinks(2, 5)

    def f(x: Tensor) -> Tensor:
        return case(x, pattern=pattern)

    assert torch.autograd.gradcheck(f, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(f, x)


@every_case
def test_vmap(case: Case) -> None:
    x = randn(4, 3, 5)
    expected = by_definition(case.f, x, 2, "alternate")  # dimension 1 of each sample is dimension 2 of the batch
    torch.testing.assert_close(torch.func.vmap(case)(x), expected)
    torch.testing.assert_close(torch.func.vmap(case, in_dims=2, out_dims=2)(x.movedim(0, 2)), expected.movedim(0, 2))


@every_case
def test_derivatives_by_transform(case: Case) -> None:
    x, tangent = randn(3, 5), randn(3, 5, seed=1)

    def definition(x: Tensor) -> Tensor:
        return by_definition(case.f, x, -1, "alternate")

    torch.testing.assert_close(torch.func.jvp(case, (x,), (tangent,)), torch.func.jvp(definition, (x,), (tangent,)))
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(lambda row: case(row).sum()))(x),
        torch.func.grad(lambda rows: definition(rows).sum())(x),
    )
    torch.testing.assert_close(
        torch.func.hessian(lambda row: case(row).square().sum())(x[0]),
        torch.func.hessian(lambda row: definition(row).square().sum())(x[0]),
    )
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(case(forward_ad.make_dual(x, tangent))).tangent
    torch.testing.assert_close(dual, torch.func.jvp(definition, (x,), (tangent,))[1])


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtypes(case: Case, dtype: torch.dtype) -> None:
    x = randn(4, 33).to(dtype).requires_grad_()
    reference = x.detach().double().requires_grad_()
    output, expected = case(x), by_definition(case.f, reference, 1, "alternate")
    assert output.dtype == dtype
    grad, expected_grad = (torch.autograd.grad(y.sum(), z)[0] for y, z in ((output, x), (expected, reference)))
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(output.double(), expected, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(grad.double(), expected_grad, rtol=tolerance, atol=tolerance)


@every_case
def test_saturation_keeps_its_derivative_in_half_precision(case: Case) -> None:
    x = torch.tensor([[-4.0, 4.0]], dtype=torch.bfloat16, requires_grad=True)
    reference = x.detach().clone().requires_grad_()
    case(x).sum().backward()
    by_definition(case.f, reference, 1, "alternate").sum().backward()
    torch.testing.assert_close(x.grad, reference.grad, rtol=0.02, atol=0)


@every_case
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_autocast_treats_it_as_the_plain_activation(case: Case, dtype: torch.dtype) -> None:
    x = randn(4, 6, dtype=dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, plain = case(x), case.f(x)
    assert output.dtype == plain.dtype
    output.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == x.dtype


@every_case
@every_pattern
@pytest.mark.parametrize("dim", [1, -1])
def test_memory_formats(case: Case, pattern: Pattern, dim: int) -> None:
    images, volumes = randn(2, 6, 4, 5), randn(2, 6, 3, 4, 5)
    for x, memory_format in (
        (images.contiguous(memory_format=torch.channels_last), torch.channels_last),
        (volumes.contiguous(memory_format=torch.channels_last_3d), torch.channels_last_3d),
        (images, torch.contiguous_format),
    ):
        x.requires_grad_()
        output = case(x, dim=dim, pattern=pattern)
        (grad,) = torch.autograd.grad(output, x, torch.ones_like(output))
        assert output.is_contiguous(memory_format=memory_format)
        assert grad.is_contiguous(memory_format=memory_format)
        torch.testing.assert_close(output, by_definition(case.f, x, dim, pattern))


@every_case
@every_pattern
def test_inputs_that_are_not_contiguous(case: Case, pattern: Pattern) -> None:
    base = randn(8, 6, 10)
    for x in (base.mT, base[:, ::2], base[::2, :, 1:-1], base[:1].expand(4, 6, 10), base.permute(2, 0, 1)):
        for dim in range(x.ndim):
            expected = by_definition(case.f, x, dim, pattern)
            torch.testing.assert_close(case(x, dim=dim, pattern=pattern), expected)


@every_case
def test_nan_and_infinity_behave_as_in_torch(case: Case) -> None:
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0])
    x = special.repeat_interleave(32).view(5, 32)  # long enough for vectorised kernels, with both kinds of unit
    # not unit by unit: the GELU of infinity depends in torch on the layout of the memory
    flipped = torch.arange(32) % 2 == 1
    torch.testing.assert_close(case(x), torch.where(flipped, -case.f(-x), case.f(x)), equal_nan=True)
    assert case(x)[0].isnan().all()


@every_case
def test_the_derivative_at_the_kink_and_at_infinity_is_that_of_torch(case: Case) -> None:
    x = torch.tensor([math.inf, -math.inf, 0.0, -0.0]).repeat_interleave(32).view(4, 32).requires_grad_()
    ours, expected = (torch.autograd.grad(f.sum(), x)[0] for f in (case(x), by_definition(case.f, x, 1, "alternate")))
    torch.testing.assert_close(ours, expected, equal_nan=True)


@every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_tensor_is_kept_for_the_backward_pass(case: Case, dtype: torch.dtype) -> None:
    x = randn(8, 64, 4, dtype=dtype).requires_grad_()
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = case(x)
    full = x.untyped_storage().nbytes()
    assert [size for size in kept.values() if size >= full / 4] == [full]
    assert output.requires_grad


@every_case
def test_tensor_subclasses_and_modes_see_the_call(case: Case) -> None:
    class Labelled(Tensor):
        pass

    calls: list[object] = []

    class Recorder(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func)
            return func(*args, **(kwargs or {}))

    x = randn(3, 5)
    labelled = case(x.as_subclass(Labelled))
    assert type(labelled) is Labelled
    torch.testing.assert_close(labelled.as_subclass(Tensor), case(x))
    with Recorder():
        case(x)
    assert {getattr(F, name) for name in F.__all__} & set(calls)
    with Recorder():
        F.bipolar(case.f, x)
    assert F.bipolar in calls


@every_case
@pytest.mark.parametrize("after", [lambda y, x: y.add_(1), lambda y, x: y.mul_(0.5), lambda y, x: y.add_(x)])
def test_the_output_may_be_changed_in_place_where_torch_allows_it(case: Case, after: Any) -> None:
    may_be_changed_in_place(case, after, compiled=False)


@every_case
@pytest.mark.parametrize("path", ["fast"], indirect=True)  # compiled, small tensors go the way of large ones
def test_compiled_output_may_be_changed_in_place_where_torch_allows_it(case: Case) -> None:
    may_be_changed_in_place(case, lambda y, x: y.add_(x), compiled=True)


def may_be_changed_in_place(case: Case, after: Any, compiled: bool) -> None:
    if not torch_allows(case.f, after, compiled):  # torch keeps the output of its ReLU, and so do we
        return
    expected = changed_in_place(lambda x: by_definition(case.f, x, 1, "alternate"), after, compiled=False)
    torch.testing.assert_close(changed_in_place(case, after, compiled), expected)


def changed_in_place(f: Any, after: Any, compiled: bool) -> Tensor:
    """The gradient of a function whose output is changed in place."""

    def block(x: Tensor) -> Tensor:
        y = f(x)
        after(y, x)
        return y.square()

    x = away_from_kinks(3, 4)
    if compiled:
        torch.compiler.reset()
    output = (torch.compile(block, fullgraph=True, backend="aot_eager") if compiled else block)(x)
    return torch.autograd.grad(output.sum(), x)[0]


def torch_allows(plain: Any, after: Any, compiled: bool) -> bool:
    try:
        changed_in_place(plain, after, compiled)
    except RuntimeError:
        return False
    return True


@every_case
def test_a_transform_that_does_not_concern_the_activation(case: Case) -> None:
    x, scales = randn(3, 4), randn(5)
    expected = torch.stack([case(x) * scale for scale in scales])
    torch.testing.assert_close(torch.func.vmap(lambda scale: case(x) * scale)(scales), expected)
    torch.testing.assert_close(torch.func.grad(lambda scale: (case(x) * scale).sum())(scales[0]), case(x).sum())


inplace_cases = pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.inplace], ids=[name for name in CASES if CASES[name].inplace]
)


@inplace_cases
@every_pattern
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_in_place(case: Case, pattern: Pattern, layout: torch.memory_format) -> None:
    leaf = randn(2, 5, 3, 3).contiguous(memory_format=layout).requires_grad_()
    x = leaf * 1
    output = case(x, inplace=True, pattern=pattern)
    assert output.data_ptr() == x.data_ptr()
    expected = by_definition(case.f, leaf, 1, pattern)
    torch.testing.assert_close(x, expected)
    grad = randn(2, 5, 3, 3, seed=1)
    torch.testing.assert_close(torch.autograd.grad(output, leaf, grad)[0], torch.autograd.grad(expected, leaf, grad)[0])


@inplace_cases
def test_in_place_second_derivative(case: Case) -> None:
    assert torch.autograd.gradgradcheck(lambda x: case(x * 1, inplace=True), away_from_kinks(2, 4))


@inplace_cases
def test_in_place_under_vmap_and_without_gradients(case: Case) -> None:
    x = randn(4, 3, 5)
    expected = by_definition(case.f, x, 2, "alternate")
    torch.testing.assert_close(torch.func.vmap(lambda row: case(row * 1, inplace=True))(x), expected)
    leaf = x.clone().requires_grad_()
    with torch.no_grad():
        case(leaf, inplace=True, dim=2)  # as for torch, a leaf may be overwritten where gradients are off
    torch.testing.assert_close(leaf.detach(), expected)


@inplace_cases
def test_in_place_on_a_view_that_torch_refuses_leaves_the_data_alone(case: Case) -> None:
    base = randn(3, 4).requires_grad_()
    before = base.detach().clone()
    with pytest.raises(RuntimeError, match="inplace: cannot overwrite input"):
        case(base[:, :2], inplace=True)
    part = (base * 1).chunk(2, 1)[0]
    with pytest.raises(RuntimeError, match="multiple views"):
        case(part, inplace=True)
    assert torch.equal(part, before[:, :2])
    assert torch.equal(base, before)
    whole = base * 1
    case(whole[:, :2], inplace=True)
    expected = torch.cat((by_definition(case.f, base[:, :2], 1, "alternate"), base[:, 2:]), 1)
    torch.testing.assert_close(whole, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), base)[0] for y in (whole, expected)))


@inplace_cases
def test_in_place_on_a_leaf_that_needs_gradients_is_refused(case: Case) -> None:
    x = randn(2, 4).requires_grad_()
    with pytest.raises(RuntimeError, match=r"inplace: cannot overwrite input, a leaf tensor"):
        case(x, inplace=True)


@every_case
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_other_dtypes_than_floating_point_are_refused(case: Case, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"input: expected a floating-point tensor, got {dtype}"):
        case(torch.ones(2, 4).to(dtype))


@every_case
def test_a_tensor_without_dimensions_is_refused(case: Case) -> None:
    with pytest.raises(ValueError, match=r"input: expected a tensor with a channel dimension"):
        case(torch.tensor(1.0))


@every_case
@pytest.mark.parametrize(("shape", "dim"), [((2, 3), 2), ((2, 3), -3), ((3,), 2), ((3,), -2), ((2, 3, 4), 7)])
def test_a_dim_out_of_range_is_refused(case: Case, shape: tuple[int, ...], dim: int) -> None:
    with pytest.raises(IndexError, match=rf"dim: expected a value from -{len(shape)} to {len(shape) - 1} .* got {dim}"):
        case(torch.ones(shape), dim=dim)


@every_case
def test_an_unknown_pattern_is_refused(case: Case) -> None:
    with pytest.raises(ValueError, match=r"pattern: expected one of 'alternate', 'halves', got 'every other'"):
        case(torch.ones(2, 3), pattern="every other")


@pytest.mark.parametrize("dim", [None, "1", 1.0])
def test_a_dim_that_is_not_an_integer_is_refused(dim: Any) -> None:
    with pytest.raises(TypeError, match="dim: expected an integer, got"):
        F.brelu(torch.ones(2, 3), dim=dim)


def test_numbers_of_other_libraries_are_numbers() -> None:
    x = randn(2, 3)
    assert torch.equal(F.belu(x, torch.tensor(0.5)), F.belu(x, 0.5))


def test_the_generic_function_wants_an_elementwise_one() -> None:
    with pytest.raises(ValueError, match=r"f: expected an elementwise function, but it made \(2, 1\) of \(2, 3\)"):
        F.bipolar(lambda x: x.sum(dim=1, keepdim=True), torch.ones(2, 3))


def test_prelu_with_a_slope_for_each_channel() -> None:
    x, weight = away_from_kinks(2, 3, 4, 2), torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64, requires_grad=True)
    for dim, size in ((1, 3), (2, 4), (-1, 2), (0, 2)):
        channels = [
            by_definition(lambda u, i=i: tF.prelu(u, weight[i]), x, dim, "alternate").select(dim, i)  # type: ignore[misc]
            for i in range(size)
        ]
        output = F.bprelu(x, weight[:size], dim=dim)
        torch.testing.assert_close(output, torch.stack(channels, dim))
        assert torch.autograd.gradcheck(lambda x, w, dim=dim: F.bprelu(x, w, dim=dim), (x, weight[:size]))
    assert torch.equal(F.bprelu(x[0, 0, :, 0], weight), F.bprelu(x[:1, 0, :, 0], weight)[0])


@pytest.mark.parametrize("weight", [torch.ones(2), torch.ones(1, 3), torch.ones(0)])
def test_prelu_with_the_wrong_number_of_slopes_is_refused(weight: Tensor) -> None:
    with pytest.raises(ValueError, match=r"weight: expected one slope or 3, one for each channel"):
        F.bprelu(torch.ones(4, 3), weight)


@pytest.mark.parametrize("inplace", [False, True])
def test_rrelu_draws_its_slopes_between_the_bounds_in_training(inplace: bool) -> None:
    leaf = randn(64, 33).requires_grad_()
    output = F.brrelu(leaf * 1, 0.1, 0.3, training=True, inplace=inplace)
    (grad,) = torch.autograd.grad(output.sum(), leaf)
    slopes = output / leaf
    torch.testing.assert_close(slopes, grad)
    upright = by_definition(tF.relu, leaf, 1, "alternate") != 0
    assert (slopes[upright] == 1).all()
    assert ((slopes[~upright] > 0.1) & (slopes[~upright] < 0.3)).all()
    assert slopes[~upright].std() > 0.04  # uniform: 0.2 / sqrt(12) = 0.058


def test_rrelu_in_evaluation_is_that_of_torch() -> None:
    x = randn(4, 6)
    torch.testing.assert_close(F.brrelu(x, 0.1, 0.4), by_definition(lambda u: tF.rrelu(u, 0.1, 0.4), x, 1, "alternate"))


def test_rrelu_with_bounds_in_the_wrong_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lower: expected at most upper = 0.1, got 0.3"):
        F.brrelu(torch.ones(2, 3), 0.3, 0.1)


def test_celu_with_alpha_0_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha: expected a number other than 0"):
        F.bcelu(torch.ones(2, 3), 0.0)


class TestRelatives:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(shape=shapes, dim=st.integers(0, 4), pattern=st.sampled_from(PATTERNS), seed=st.integers(0, 9))
    def test_oplu_sorts_pairs(self, shape: list[int], dim: int, pattern: Pattern, seed: int) -> None:
        dim %= len(shape)
        x = randn(*shape, seed=seed)
        half, expected = x.size(dim) // 2, list(x.unbind(dim))
        pairs = [(2 * k, 2 * k + 1) if pattern == "alternate" else (k, k + half) for k in range(half)]
        for i, j in pairs:
            expected[i], expected[j] = torch.maximum(expected[i], expected[j]), torch.minimum(expected[i], expected[j])
        output = F.oplu(x, dim=dim, pattern=pattern)
        assert torch.equal(output, torch.stack(expected, dim) if expected else x)
        torch.testing.assert_close(output.norm(), x.norm())
        torch.testing.assert_close(output.sum(), x.sum())

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(shape=shapes, dim=st.integers(0, 4), seed=st.integers(0, 9))
    def test_crelu_concatenates_both_signs(self, shape: list[int], dim: int, seed: int) -> None:
        dim %= len(shape)
        x = randn(*shape, seed=seed)
        output = F.crelu(x, dim=dim)
        assert torch.equal(output.narrow(dim, 0, x.size(dim)), tF.relu(x))
        assert torch.equal(output.narrow(dim, x.size(dim), x.size(dim)), tF.relu(-x))
        assert torch.equal(F.crelu(x, tF.elu, dim=dim).narrow(dim, x.size(dim), x.size(dim)), tF.elu(-x))

    def test_crelu_with_a_function_that_works_in_place(self) -> None:
        x = randn(2, 3)
        assert torch.equal(F.crelu(x.clone(), torch.relu_), F.crelu(x))

    @pytest.mark.parametrize("f", [F.oplu, F.crelu])
    def test_derivatives_transforms_and_memory_format(self, f: Any) -> None:
        x = away_from_kinks(2, 5)
        assert torch.autograd.gradcheck(f, x, check_forward_ad=True, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(f, x)
        batch = randn(4, 2, 5)
        torch.testing.assert_close(torch.func.vmap(f)(batch), torch.stack([f(sample) for sample in batch]))
        images = randn(2, 6, 4, 5).contiguous(memory_format=torch.channels_last)
        assert f(images).is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(f(images), f(images.contiguous()))

    @pytest.mark.parametrize("f", [F.oplu, F.crelu])
    def test_bad_input(self, f: Any) -> None:
        with pytest.raises(TypeError, match="input: expected a floating-point tensor"):
            f(torch.ones(2, 4, dtype=torch.int64))
        with pytest.raises(ValueError, match="input: expected a tensor with a channel dimension"):
            f(torch.tensor(1.0))
        with pytest.raises(IndexError, match="dim: expected a value"):
            f(torch.ones(2, 3), dim=2)
