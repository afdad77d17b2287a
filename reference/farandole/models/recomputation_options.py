"""The options of activation recomputation and offload."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from cyclopts import Parameter

from farandole.errors import UsageError
from farandole.models import operations
from farandole.models.options import TrainingOptions

Recomputed = Literal["none", "selective", "full", "stage"]
Offload = Literal["host", "disk"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecomputationOptions(TrainingOptions):
    """Activations that are computed again, and where the others are kept."""

    bare_options: ClassVar[Mapping[str, str]] = {"recompute": "stage", "offload_activations": "host"}

    recompute: Recomputed = "none"
    """stage, or the bare option: keep only each stage's inputs, and compute the rest again for the backward pass. Of a
    transformer selective: compute the core of attention again; full: each block, of which only the inputs are kept."""

    unfused_attention: bool = False
    """Compute all scores of a sequence at once and keep their softmax, which selective recomputation is made for. Fused
    attention keeps one number per head and position."""

    offload_activations: Offload | None = None
    """Copy what is kept for the backward pass to the host's memory, or to files in the folder for temporary files, and
    back one layer ahead of its use. [default: it stays on the device]"""

    def recomputed(self) -> Recomputed:
        """Return what is computed again.

        Raises:
            UsageError: the model has no such parts; or nothing would be left to be offloaded.
        """
        if self.offload_activations and self.recompute == "stage":
            raise UsageError(
                "--offload-activations: --recompute stage keeps only a stage's inputs, which stay on the device: "
                "give one of them, or --recompute full"
            )
        if self.task is not None or self.model != "transformer":
            instead = ", or --recompute stage" if "recompute" in self.bare_options else ""
            for option, is_given in (
                (f"--recompute {self.recompute}", self.recompute not in ("none", "stage")),
                ("--unfused-attention", self.unfused_attention),
            ):
                if is_given:
                    raise UsageError(
                        f"{option} is for the blocks of the small transformer: "
                        f"give --model transformer --data pydoc{instead}"
                    )
        return self.recompute

    def recomputed_flops_per_sample(self) -> int | None:
        if self.recompute == "none":
            return 0
        if self.recompute == "stage":
            both = self.flops_per_sample()
            return None if both is None else both // operations.FORWARD_AND_BACKWARD
        (context,) = self.sample_shape()
        once = {"selective": operations.attention, "full": operations.block}[self.recompute]
        return context * self.depth * once(context, self.hidden)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BlockRecomputationOptions(RecomputationOptions):
    """Recomputation and offload in a method without stages."""

    bare_options: ClassVar[Mapping[str, str]] = {"offload_activations": "host"}

    recompute: Literal["none", "selective", "full"] = "none"
    """Of a transformer selective: compute the core of attention again for the backward pass; full: each block, of which
    only the inputs are kept."""
