"""Devices and precision of a run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bipolar.lab.errors import UsageError

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The devices of a run, and the precision of its arithmetic."""

    accelerator: str = "auto"
    """``cpu``, ``cuda``, ``mps``, or ``auto`` for the fastest that is there."""
    devices: int = 1
    """Devices, or processes on a CPU, for each node."""
    num_nodes: int = 1
    """Nodes."""
    precision: Literal["32-true", "16-mixed", "bf16-mixed", "64-true"] = "32-true"
    """The precision of the arithmetic."""

    @property
    def processes(self) -> int:
        """The processes of a run."""
        return self.devices * self.num_nodes

    @property
    def several(self) -> bool:
        """Whether a run takes more than one process."""
        return self.processes > 1

    def fabric(self) -> "Fabric":
        for name in ("devices", "num_nodes"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected at least 1")
        from lightning_fabric import Fabric  # takes two seconds, and not every command trains

        try:
            return Fabric(
                accelerator=self.accelerator,
                devices=self.devices,
                num_nodes=self.num_nodes,
                precision=self.precision,
                strategy="ddp" if self.several else "auto",
            )
        except (ValueError, RuntimeError, ImportError) as error:  # such as no GPU
            raise UsageError(f"--accelerator {self.accelerator} --precision {self.precision}: {error}") from None
