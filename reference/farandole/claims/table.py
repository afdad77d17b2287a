"""All claims by name, in the order in which they are run: those that launch no ranks first."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from farandole.claims import (
    asynchronous,
    bucket_curve,
    bucket_size,
    checkpoints,
    collectives,
    compressed_trainings,
    compression,
    decentralised,
    delays,
    divided_transformers,
    federated,
    goodput,
    gradient_push,
    in_memory,
    large_batch,
    large_models,
    local_steps,
    pipelines,
    recovery,
    scaling,
    shorter_bubbles,
    slow_links,
    staleness,
    stragglers,
)
from farandole.claims.claim import Claim
from farandole.errors import UsageError

THEMES = {
    "Collectives": collectives.CLAIMS,
    "Data parallel": (*scaling.CLAIMS, *bucket_size.CLAIMS, *bucket_curve.CLAIMS, *large_batch.CLAIMS),
    "Pipelines": (*pipelines.CLAIMS, *shorter_bubbles.CLAIMS),
    "Large models": (*large_models.CLAIMS, *divided_transformers.CLAIMS),
    "Compression": (*compression.CLAIMS, *compressed_trainings.CLAIMS),
    "Without a coordinator": (*decentralised.CLAIMS, *gradient_push.CLAIMS, *slow_links.CLAIMS),
    "Synchronising less often": local_steps.CLAIMS,
    "Stragglers and staleness": (*stragglers.CLAIMS, *staleness.CLAIMS, *delays.CLAIMS, *asynchronous.CLAIMS),
    "Federated learning": federated.CLAIMS,
    "Failures": (*recovery.CLAIMS, *goodput.CLAIMS, *checkpoints.CLAIMS, *in_memory.CLAIMS),
}
ON_RANKS = ("real ranks", "paced ranks")
CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for on_ranks in (False, True)
    for theme in THEMES.values()
    for claim in theme
    if (claim.kind in ON_RANKS) == on_ranks
}


def chosen(names: Sequence[str]) -> list[Claim]:
    """Return the claims of these names, each once; of "all", all.

    Raises:
        UsageError: there is none of a name.
    """
    for name in names:
        if name not in (*CLAIMS, "all"):
            near = get_close_matches(name, CLAIMS, 3, 0.4)
            meant = f"did you mean {' or '.join(near)}?" if near else "farandole reproduce lists them"
            raise UsageError(f"there is no claim {name!r}: {meant}")
    return list(CLAIMS.values()) if "all" in names else [CLAIMS[name] for name in dict.fromkeys(names)]
