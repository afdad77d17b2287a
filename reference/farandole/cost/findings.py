"""The findings of `sync_cost`: each method's predicted and measured cost, as costs.json has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from farandole.cost.cost_function import NoiseScale


@dataclass(frozen=True)
class Row:
    """One method, predicted and measured. Seconds are per batch.

    Attributes:
        comm_s, compute_s: predicted T_comm and T_comp, waiting included in the latter.
        measured_comm_s: of the rank that waited least, each step.
        bytes_sent: per batch, of the rank that sent most.
        steps_to_loss: batches until the loss was at the goal; None: never.
        test_metrics: each metric's mean over the test samples.
        efficiency: number of workers → part of the speed that is left of a training without waiting and messages.
    """

    method: str
    comm_s: float
    compute_s: float
    measured_s: float
    measured_comm_s: float
    bytes_sent: float
    final_loss: float
    test_metrics: dict[str, float]
    steps_to_loss: int | None
    efficiency: dict[int, float]

    @property
    def predicted_s(self) -> float:
        """C."""
        return self.comm_s + self.compute_s

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted_s / self.measured_s - 1

    @property
    def to_loss_s(self) -> float | None:
        return None if self.steps_to_loss is None else self.steps_to_loss * self.measured_s

    def to_dict(self) -> dict[str, object]:
        """As costs.json has it, where the method is called a way."""
        figures = asdict(self)
        derived = {
            "test_accuracy": self.test_metrics.get("accuracy"),
            "predicted_s": self.predicted_s,
            "error": self.error,
            "to_loss_s": self.to_loss_s,
        }
        return {"way": figures.pop("method"), **figures, **derived}


@dataclass(frozen=True)
class Findings:
    """All that one run has found, as costs.json has it."""

    alpha_s: float
    beta_s: float
    nbytes: int
    noise: NoiseScale | None
    rows: list[Row]

    def to_dict(self) -> dict[str, object]:
        rows = [row.to_dict() for row in self.rows]
        noise = asdict(self.noise) | {"critical_batch": self.noise.critical_batch} if self.noise else None
        return {"alpha_s": self.alpha_s, "beta_s": self.beta_s, "nbytes": self.nbytes, "noise": noise, "ways": rows}
