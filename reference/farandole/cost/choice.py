"""The options of the simulated methods, and which methods each option is for."""

from __future__ import annotations

from dataclasses import dataclass, field

from farandole.collectives.schedules import COLLECTIVES
from farandole.compression.options import CompressionOptions
from farandole.compression.table import COMPRESSORS
from farandole.compression.table import MEANT_FOR as OF_COMPRESSORS
from farandole.model_parallel.schedules import ONE_WAY
from farandole.models.shape import Shape
from farandole.parameter_server.core.policies import POLICIES

LOCAL, DYNAMIC_ROUNDS = "local-sgd", "dynamic-rounds"
DILOCO, STREAMING = "diloco", "streaming-diloco"
ZERO = ("zero-1", "zero-2", "zero-3")
GRID = "grid"
GOSSIP, AD_PSGD = "gossip", "ad-psgd"
ALL_REDUCES = tuple(name for name, row in COLLECTIVES.items() if row.is_simulated)
COMPRESSED = tuple(name for name in COMPRESSORS if name != "none")  # with none it is the ring
AS_COLLECTIVES = tuple(name for name in COMPRESSED if name != "majority-vote")  # whose all-to-all has P² messages
PIPELINED = (*ONE_WAY, GRID)
FAMILIES: dict[str, tuple[str, ...]] = {  # all simulated methods, as the table groups them
    "parameter server": tuple(POLICIES), "all-reduce": ALL_REDUCES,
    "local steps": (LOCAL, DILOCO, STREAMING, DYNAMIC_ROUNDS), "compression": COMPRESSED,
    "no coordinator": (GOSSIP, AD_PSGD), "pipelines": PIPELINED, "sharding": ZERO,
}  # fmt: skip
BYTES = 4  # of a parameter, and of an activation


def _using(bound: str) -> tuple[str, ...]:
    """Return the policies that a bound is for."""
    return tuple(name for name, row in POLICIES.items() if bound in row.options)


# The methods that an option is for; an option that is not here is for all.
MEANT_FOR: dict[str, tuple[str, ...]] = {
    "servers": tuple(POLICIES), "duplex": tuple(POLICIES), "staleness": _using("staleness"),
    "least_staleness": _using("least_staleness"), "longest_wait_ms": _using("longest_wait"),
    "enough": _using("enough"), "patience": _using("patience"),
    "period": (LOCAL, DILOCO, STREAMING), "per_node": ("hierarchical",), "kappa": (DYNAMIC_ROUNDS,),
    "longest": (DYNAMIC_ROUNDS,), "equal_steps": (DYNAMIC_ROUNDS,),
    "topology": (GOSSIP, AD_PSGD), "mixing_every": (GOSSIP, AD_PSGD),
    "mix_after_update": (GOSSIP,), "fragments": (STREAMING,), "delay": (STREAMING,),
    "units": (*ZERO, "powersgd", GRID), "prefetch": ZERO[2:],
    **{name: OF_COMPRESSORS[name] for name in ("fraction", "levels", "bucket", "matrix_rank", "share_scales")},
    "encode_ms": COMPRESSED,
    "stages": PIPELINED, "micro_batches": PIPELINED, "activation_mb": PIPELINED, "micro_batch": PIPELINED,
    "chunks": ("interleaved", GRID), "schedule": (GRID,), "tensor": (GRID,),
    **dict.fromkeys(("shard_ranks", "expert_ranks", "context_ranks", "experts", "top_k"), (GRID,)),
    "network": (*ALL_REDUCES, *AS_COLLECTIVES, LOCAL, DILOCO, STREAMING, DYNAMIC_ROUNDS, *ZERO, *PIPELINED, GOSSIP),
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """The methods' own options.

    Attributes:
        enough: of partial and history, the share of the workers that makes a step; always one worker at least.
        period: of local SGD and DiLoCo, the steps from one average to the next.
        per_node: of hierarchical, the workers of a node; None: as many, up to 8, as divide the workers.
        topology, mixing_every, mix_after_update: gossip and ad-psgd, as of the scenarios dpsgd and ad_psgd.
        kappa, longest, equal_steps: dynamic rounds, as of the scenario dynamic_sync.
        fragments, delay: of streaming DiLoCo, as of the scenario diloco.
        units: of ZeRO and of a grid, into how many the parameters are cut.
        prefetch: of its stage 3.
        compression: of compressed gradients, as of the scenario compressed_sgd; its compressor is the method's name.
        encode_s: of these, the time to encode and decode a gradient.
        model: the shape of a transformer; None: there are `units` of equal length.
        stages: of a pipeline; None: as many, up to 8, as divide the workers.
        micro_batches: of a step of each pipeline; None: four for each stage.
        chunks: of interleaved, pieces of the model on each worker.
        activation: bytes of a micro-batch's outputs between two layers, where there is no model.
        micro_batch: sequences in one, where there is a model.
        schedule, tensor: of the grid, its pipelines' schedule and the ranks that divide each layer.
        shard_ranks, expert_ranks, context_ranks: of the grid, as of the scenario grid.
        experts, top_k: of each layer, and those that each token is sent to; 0: there is a network instead.
        sends_block: a stage waits until its link has carried what it sends, as `--link-mbps` makes it.
    """

    staleness: int = 4
    least_staleness: int = 1
    longest_wait: float = 0.02
    enough: float = 0.9
    patience: float = 0.5
    period: int = 8
    per_node: int | None = None
    topology: str = "ring"
    mixing_every: int = 1
    mix_after_update: bool = False
    kappa: float = 4.0
    longest: int = 64
    equal_steps: bool = False
    fragments: int = 4
    delay: int = 1
    units: int = 12
    prefetch: bool = False
    compression: CompressionOptions = field(default_factory=CompressionOptions)
    encode_s: float = 0.0
    model: Shape | None = None
    stages: int | None = None
    micro_batches: int | None = None
    chunks: int = 2
    activation: float = 1e6
    micro_batch: int = 1
    schedule: str = "1f1b"
    tensor: int = 1
    shard_ranks: int = 1
    expert_ranks: int = 1
    context_ranks: int = 1
    experts: int = 0
    top_k: int = 2
    sends_block: bool = False

    @property
    def has_six_axes(self) -> bool:
        """Return whether the grid is one of the scenario grid, and not of hybrid."""
        return bool(self.experts) or self.shard_ranks * self.expert_ranks * self.context_ranks > 1
