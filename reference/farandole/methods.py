"""Every method, one row each: what can be run, and where it is simulated, measured, toured and explained.

``farandole run``, ``list``, ``compare``, ``bench methods``, ``simulate`` and ``tour`` and the tests read `METHODS`.
The parts of methods have a table in each room: `collectives.schedules.COLLECTIVES`, `compression.table.COMPRESSORS`,
`decentralised.topologies.TOPOLOGIES`, `model_parallel.schedules.SCHEDULES`, `parameter_server.core.policies.POLICIES`.

A row names modules and imports none, so reading the table needs neither torch nor MPI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from farandole.collectives.schedules import COLLECTIVES
from farandole.compression.table import COMPRESSORS
from farandole.errors import UsageError
from farandole.model_parallel.schedules import ONE_WAY
from farandole.parameter_server.core import policies
from farandole.parameter_server.core.policies import POLICIES

Options = Mapping[str, Any]

SIMULATORS = "farandole.cost.comparison"
PIPELINES = "farandole.cost.pipelines:simulated"
# Of the four ranks of the tour and of `bench methods`, one is manager and server: three workers remain.
SERVED: dict[str, Any] = {"place": "servers=0,workers=1-3"}
# The groups of the tour's page.
ONE_SUM, LIBRARIES = "The same sum, formed in different ways", "The same step by a library"
SENDS_LESS = "Fewer or smaller messages"
WITH_SERVER, IN_PARTS, FAILING = "A parameter server", "A model in parts", "A rank dies"


@dataclass(frozen=True)
class Measured:
    """A line of `bench methods`: its name, and the method's options."""

    name: str
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Stop:
    """A line of the tour: its name, what it is, and the method's options.

    Attributes:
        needs: a package without which the line is left out; "": none.
        group: the heading under which the tour's page shows it; "": that of the method's room.
        notebook: the notebook that explains it; "": none.
        lab: the lab in which a learner writes it; "": none.
    """

    name: str
    about: str
    options: Options = field(default_factory=dict)
    needs: str = ""
    group: str = ""
    notebook: str = ""
    lab: str = ""


@dataclass(frozen=True)
class Method:
    """One scenario.

    Attributes:
        room: the folder that holds the method.
        concept: the row of docs/concept_map.md that explains it.
        code: the file of this package whose docstring has its formula, cost and source.
        module: the module with its Config and main; "": farandole.scenarios.NAME.
        aliases: other names for it on the command line.
        simulated: name in `farandole simulate` → "module:function" that simulates it.
        why_not_simulated: the reason, if it is not simulated.
        measured: its lines in `bench methods`.
        tour: its lines in the tour.
    """

    room: str
    concept: str
    code: str = ""
    module: str = ""
    aliases: tuple[str, ...] = ()
    simulated: Mapping[str, str] = field(default_factory=dict)
    why_not_simulated: str = ""
    measured: tuple[Measured, ...] = ()
    tour: tuple[Stop, ...] = ()


MEASURES = "it measures ranks and links, and decides by that"
AS_GOSSIP = "its network is that of gossip, and what it computes or sends instead is not modelled"
CONTEXT_IN_GRID = "grid simulates context ranks with ring attention"
EXPERTS_IN_GRID = "grid simulates expert ranks, each with equally many tokens"
IN_GRID = "grid simulates every division into data, pipeline and tensor ranks"
AS_SERVER = "its network is that of bsp and async, and how it learns is not modelled"
RECOVERS = "failures are simulated with any method: --fail-every"

METHODS: dict[str, Method] = {
    "sync_sgd": Method(
        "data_parallel", "Data parallel", "data_parallel/synchronous.py",
        simulated={name: f"{SIMULATORS}:all_reduced" for name, row in COLLECTIVES.items() if row.is_simulated},
        measured=(
            Measured("ring"),
            Measured("ring, overlapped", {"overlap": True, "bucket_kb": 64}),
            Measured("central aggregator", {"collective": "central"}),
            Measured("halving-doubling", {"collective": "halving-doubling"}),
            Measured("shared memory", {"collective": "window"}),
            Measured("MPI all-reduce", {"collective": "mpi"}),
            Measured("ring, in bfloat16", {"precision": "bfloat16"}),
        ),
        tour=(
            Stop(
                "ring all-reduce", "our own ring: each rank talks to its neighbours only",
                group=ONE_SUM, notebook="02_ring_all_reduce", lab="02_ring_all_reduce",
            ),
            Stop(
                "central aggregator", "all gradients through rank 0", {"collective": "central"},
                group=ONE_SUM, notebook="02_ring_all_reduce",
            ),
            Stop(
                "ring, overlapped", "the ring, while backward continues", {"overlap": True, "bucket_kb": 256},
                group=ONE_SUM, notebook="05_overlap", lab="04_overlapped_data_parallel",
            ),
            Stop(
                "shared memory", "gradients lie where all ranks can add them up", {"collective": "window"},
                group=ONE_SUM, notebook="04_collectives",
            ),
            Stop(
                "MPI all-reduce", "the MPI library's own all-reduce", {"collective": "mpi"},
                group=ONE_SUM, notebook="04_collectives", lab="03_halving_doubling",
            ),
        ),
    ),
    "horovod_sgd": Method(
        "data_parallel", "Horovod", "data_parallel/horovod_twin.py",
        why_not_simulated="a library decides what it sends",
        measured=(Measured("Horovod"),),
        tour=(
            Stop(
                "Horovod", "Horovod's DistributedOptimizer over MPI", needs="horovod",
                group=LIBRARIES, notebook="26_your_own_model", lab="16_bring_your_own_loop",
            ),
        ),
    ),
    "ddp_sgd": Method(
        "data_parallel", "DistributedDataParallel", "data_parallel/ddp_twin.py",
        why_not_simulated="a library decides what it sends",
        measured=(Measured("torch DDP"),),
        tour=(
            Stop(
                "torch DDP", "torch's DistributedDataParallel over gloo",
                group=LIBRARIES, notebook="03_synchronous_sgd", lab="04_overlapped_data_parallel",
            ),
        ),
    ),
    "local_sgd": Method(
        "data_parallel", "Document 003's six steps: train apart, average weights", "data_parallel/local_sgd.py",
        simulated={"local-sgd": f"{SIMULATORS}:local"},
        measured=(Measured("local SGD, 8 steps", {"period": 8}),),
        tour=(
            Stop(
                "local SGD", "8 steps apart, then the mean of the parameters", {"period": 8},
                group=SENDS_LESS, notebook="06_local_sgd_and_averaging",
            ),
        ),
    ),
    "diloco": Method(
        "data_parallel", "Synchronising less often", "data_parallel/diloco.py",
        simulated=dict.fromkeys(("diloco", "streaming-diloco"), f"{SIMULATORS}:outer_stepped"),
        measured=(
            Measured("DiLoCo, 8 steps", {"period": 8, "lr": 0.003}),
            Measured("DiLoCo, streaming", {"period": 8, "fragments": 4, "delay": 2, "lr": 0.003}),
        ),
    ),
    "agnostic_sgd": Method(
        "data_parallel", "Synchronisation-agnostic SGD", "data_parallel/agnostic.py",
        why_not_simulated="dynamic-rounds simulates its rule, with a controller that plans the steps",
        measured=(Measured("agnostic", {"local_batch": 16}),),
    ),
    "dynamic_sync": Method(
        "data_parallel", "Changing the strategy by the system's state", "data_parallel/dynamic_sync.py",
        simulated={"dynamic-rounds": f"{SIMULATORS}:in_dynamic_rounds"},
        measured=(Measured("dynamic rounds"),),
    ),
    "compressed_sgd": Method(
        "compression", "Gradient compression", "data_parallel/compressed.py",
        simulated={name: f"{SIMULATORS}:encoded" for name in COMPRESSORS if name != "none"},
        measured=(
            Measured("float16", {"compressor": "float16"}),
            Measured("QSGD", {"compressor": "qsgd"}),
            Measured("sign, feedback", {"compressor": "sign"}),
            Measured("top-k, 1 %", {"compressor": "top-k"}),
            Measured("DGC, 1 %", {"compressor": "dgc"}),
            Measured("PowerSGD, rank 2", {"compressor": "powersgd"}),
        ),
        tour=(
            Stop(
                "top-k, 1 %", "the largest hundredth of each gradient; the rest is kept for later",
                group=SENDS_LESS, notebook="21_compression", lab="13_topk_error_feedback",
            ),
        ),
    ),
    "dpsgd": Method(
        "decentralised", "Decentralised SGD", "decentralised/dpsgd.py", aliases=("gossip_sgd",),
        simulated={"gossip": f"{SIMULATORS}:gossiping"},
        measured=(Measured("D-PSGD, ring"),),
        tour=(
            Stop(
                "gossip on a ring", "each rank averages with its two neighbours; there is no sum of all",
                group=SENDS_LESS, notebook="22_decentralised", lab="14_gossip_mixing",
            ),
        ),
    ),
    "push_sum": Method(
        "decentralised", "Decentralised SGD", "decentralised/push_sum.py", why_not_simulated=AS_GOSSIP,
        measured=(Measured("push-sum, one peer", {"topology": "one-peer-exponential"}),),
    ),
    "ad_psgd": Method(
        "decentralised", "Decentralised SGD", "decentralised/ad_psgd.py",
        simulated={"ad-psgd": f"{SIMULATORS}:in_pairs"},
        measured=(Measured("AD-PSGD"),),
    ),
    "choco_sgd": Method("decentralised", "Decentralised SGD", "decentralised/choco.py", why_not_simulated=AS_GOSSIP),
    "central_directions": Method(
        "decentralised", "Directions estimated by a centre", "decentralised/central_directions.py",
        why_not_simulated="all gradients pass through one rank, which is not modelled",
        measured=(Measured("central directions"),),
    ),
    "parameter_server": Method(
        "parameter_server", "Parameter server", "parameter_server/minimal.py",
        simulated=dict.fromkeys(POLICIES, f"{SIMULATORS}:served"),
        measured=(
            *(Measured(f"server, {sync}", SERVED | {"sync": sync}) for sync in POLICIES),
            Measured("server, sign", SERVED | {"compressor": "sign"}),
            Measured("server, in a window", SERVED | {"transport": "window"}),
            Measured("server, EASGD", SERVED | {"update": "elastic"}),
        ),
        tour=(
            Stop(
                "server, ssp", "a parameter server; workers may be 4 iterations apart", SERVED,
                group=WITH_SERVER, notebook="09_update_modes", lab="07_stale_synchronous",
            ),
            Stop(
                "server, async", "a parameter server; no worker waits", SERVED | {"sync": "async"},
                group=WITH_SERVER, notebook="08_parameter_server", lab="06_push_pull",
            ),
        ),
    ),
    "downpour": Method(
        "parameter_server", "Parameter server with DistBelief", "parameter_server/downpour.py",
        why_not_simulated=AS_SERVER,
        measured=(Measured("Downpour", SERVED | {"lr": 0.02}),)
    ),
    "layer_split": Method(
        "model_parallel", "Model partitioning by layers", "model_parallel/schedules/naive.py",
        simulated={"naive": PIPELINES},
        measured=(Measured("layer split"),),
    ),
    "pipeline": Method(
        "model_parallel", "Pipeline parallel", "model_parallel/schedules/one_f_one_b.py",
        simulated={name: PIPELINES for name in ONE_WAY if name != "naive"},
        measured=(Measured("pipeline, 1F1B", {"micro_batches": 8}),),
        tour=(
            Stop(
                "pipeline, 1F1B", "the model in four stages, each batch in 8 parts", {"micro_batches": 8},
                group=IN_PARTS, notebook="13_pipelines", lab="08_one_f_one_b",
            ),
        ),
    ),
    "membership": Method(
        "recovery", "Membership", "recovery/membership_protection.py", why_not_simulated=RECOVERS,
        tour=(
            Stop(
                "a rank killed", "rank 2 is killed at step 20; the others agree on this, and continue",
                {"optimizer": "sgd", "dropout": 0.0, "fail": "rank=2,step=20"},
                group=FAILING, notebook="17_membership_and_election", lab="12_survive_a_kill",
            ),
        ),
    ),
    "elastic_diloco": Method(
        "recovery", "Membership", "recovery/elastic_diloco.py", why_not_simulated=RECOVERS,
    ),
    "hybrid": Method(
        "model_parallel", "Hybrid of data and model parallel", "model_parallel/grid.py", why_not_simulated=IN_GRID,
        measured=(
            Measured("two pipelines", {"pipeline_ranks": 2}),
            Measured("sharded optimizer", {"pipeline_ranks": 1, "shard_optimizer": True}),
        ),
        tour=(
            Stop(
                "two pipelines", "data parallel over two pipelines of two stages", {"pipeline_ranks": 2},
                group=IN_PARTS, notebook="15_hybrid",
            ),
        ),
    ),
    "tensor_split": Method(
        "model_parallel", "Blocks of the matrix, tensor parallel", "model_parallel/tensor/linear.py",
        why_not_simulated=IN_GRID,
        measured=(Measured("tensor split"),),
    ),
    "context_parallel": Method(
        "model_parallel", "Sequences too long for one device, context parallel", "model_parallel/context/steps.py",
        why_not_simulated=CONTEXT_IN_GRID,
    ),
    "expert_parallel": Method(
        "model_parallel", "Mixture of experts, expert parallel", "model_parallel/expert/exchange.py",
        why_not_simulated=EXPERTS_IN_GRID,
    ),
    "grid": Method(
        "grid", "Six axes at once: data × shard × pipeline × expert × context × tensor", "model_parallel/grid.py",
        simulated={"grid": PIPELINES},
    ),
    "sharded": Method(
        "sharded", "Training state divided over data-parallel ranks: ZeRO, FSDP", "sharded/training.py",
        aliases=("zero", "fsdp"),
        simulated=dict.fromkeys(("zero-1", "zero-2", "zero-3"), f"{SIMULATORS}:divided"),
        measured=(
            Measured("ZeRO-1", {"stage": 1, "optimizer": "sgd"}),
            Measured("ZeRO-3", {"stage": 3, "optimizer": "sgd"}),
            Measured("ZeRO-3, prefetch", {"stage": 3, "optimizer": "sgd", "prefetch": True}),
        ),
    ),
    "fsdp_sgd": Method(
        "sharded", "Training state divided over data-parallel ranks: ZeRO, FSDP", "sharded/fsdp_twin.py",
        why_not_simulated="a library decides what it sends",
    ),
    "adaptive": Method(
        "model_parallel", "Adaptive strategy: the mode is chosen from memory and measured speeds", "cost/adaptive.py",
        why_not_simulated=MEASURES,
    ),
    "backup": Method("recovery", "Backup", "recovery/backup.py", why_not_simulated=RECOVERS),
    "elastic_horovod": Method(
        "recovery", "Elastic training", "recovery/elastic_horovod.py", why_not_simulated=RECOVERS
    ),
    "restart": Method("recovery", "Restart", "recovery/restart.py", why_not_simulated=RECOVERS),
    "federated": Method(
        "federated", "Federated learning", "federated/averaging.py",
        why_not_simulated="local-sgd simulates its rounds, with all clients in each",
    ),
    "hybrid_parameters": Method(
        "parameter_server", "Hot parameters at the centre, the rest local", "parameter_server/hybrid.py",
        why_not_simulated=AS_SERVER,
    ),
    "online": Method(
        "parameter_server", "Online incremental training", "parameter_server/online.py", why_not_simulated=AS_SERVER
    ),
    "search": Method(
        "data_parallel", "8 Tuning: a search over settings", "data_parallel/search.py",
        why_not_simulated="its trials do not communicate",
    ),
    "small_network": Method(
        "model_parallel", "Document 003's 10-20-1 network, data and model parallel", "model_parallel/small_network.py",
        why_not_simulated="it is an example of two modes, one after the other",
    ),
    "sync_cost": Method(
        "cost", "The cost function C = T_comm + T_comp", "cost/sync_cost.py", why_not_simulated=MEASURES
    ),
}  # fmt: skip


def aliases() -> dict[str, str]:
    """Return the aliases: accepted name → the method's name."""
    return {alias: name for name, method in METHODS.items() for alias in method.aliases}


def named(word: str) -> str:
    """Return the method's name, of which `word` may be an alias."""
    return aliases().get(word, word)


def with_policy(word: str, options: Options) -> tuple[str, dict[str, Any]]:
    """Return the scenario and its options; a policy's name, as ssp, stands for parameter_server with --sync ssp.

    Raises:
        UsageError: the options name another policy.
    """
    policy = policies.named(word)
    if policy not in POLICIES:
        return word, dict(options)
    if policies.named(options.get("sync", policy)) != policy:
        raise UsageError(f"{word} stands for parameter_server --sync {policy}: leave out --sync {options['sync']}")
    return "parameter_server", {**options, "sync": policy}


def simulated() -> dict[str, str]:
    """Return what `farandole simulate` offers: name → "module:function", those of a server first, by room."""
    found = {name: function for method in METHODS.values() for name, function in method.simulated.items()}
    return dict.fromkeys(POLICIES, "") | found


def stops() -> list[tuple[str, Stop]]:
    """Return the tour's lines, each with its scenario."""
    return [(name, stop) for name, method in METHODS.items() for stop in method.tour]
