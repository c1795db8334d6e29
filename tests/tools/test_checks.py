"""Checks of numbers among arguments."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from bipolar._tools.checks import check_count, check_number, check_positive


@pytest.mark.parametrize("value", [1, True, np.int64(3), torch.tensor(2)])
def test_counts(value: Any) -> None:
    check_count("n", value)


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (-1, ValueError), (1.0, TypeError), ("1", TypeError)])
def test_no_counts(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^n: expected "):
        check_count("n", value)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), torch.tensor(0.5), math.inf])
def test_numbers(value: Any) -> None:
    check_positive("x", value)


@pytest.mark.parametrize("value", ["1", None, [1], 1j])
def test_no_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^x: expected a number, got "):
        check_number("x", value)


@pytest.mark.parametrize("value", [0, -1.5, math.nan])
def test_numbers_that_are_not_positive(value: Any) -> None:
    with pytest.raises(ValueError, match=f"^x: expected a positive number, got {value}"):
        check_positive("x", value)
