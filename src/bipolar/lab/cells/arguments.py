"""Checks of the arguments that several cells share."""


def check_rates(**rates: float) -> None:
    """Each is a rate of noise: from 0 up to, not including, 1."""
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise ValueError(f"{name}: expected a rate from 0 up to, not including, 1, got {rate}")


def check_counts(**counts: int) -> None:
    """Each is a whole number of at least 1."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name}: expected a whole number of at least 1, got {count}")
