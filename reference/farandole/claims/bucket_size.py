"""Claims about the size of a bucket: gradients that are reduced beside the backward pass."""

from __future__ import annotations

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.claims.scaling import Layers, finished, ready
from farandole.collectives.costs import Link

SIZES_MB = (0, 1, 2, 5, 10, 25, 50, 200)
STEP_S = 0.1  # of ResNet-50 without communication
NETWORKS = {"10 Gbit/s, 50 µs": Link(50e-6, 8 / 10e9), "100 Gbit/s, 10 µs": Link(10e-6, 8 / 100e9)}


def resnet_50() -> Layers:
    """Return ResNet-50's parameter tensors, 25.6 million numbers: convolutions, and their norms' scales and shifts."""
    found: Layers = []

    def convolution(channels: int, to: int, kernel: int, side: int) -> None:
        numbers = channels * to * kernel**2
        found.extend([(numbers, float(numbers * side**2)), (to, 0.0), (to, 0.0)])

    convolution(3, 64, 7, 112)
    channels = 64
    for blocks, width, side in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            convolution(channels, width, 1, side)
            convolution(width, width, 3, side)
            convolution(width, 4 * width, 1, side)
            if block == 0:
                convolution(channels, 4 * width, 1, side)
            channels = 4 * width
    return [*found, (2048 * 1000, 2048.0 * 1000), (1000, 0.0)]


def buckets() -> Measured:
    """Predict a step of ResNet-50 on 16 ranks for each bucket size; 0: each tensor by itself."""
    model = resnet_50()
    lines = {
        name: [(float(size), 1e3 * finished(ready(model, STEP_S, max(1, size * 250_000)), 16, link))
               for size in SIZES_MB]
        for name, link in NETWORKS.items()
    }  # fmt: skip
    figures: dict[str, float | None] = {"parameters of the model, millions": sum(each for each, _ in model) / 1e6}
    for name, points in lines.items():
        best = min(milliseconds for _, milliseconds in points[1:-1])
        figures[f"{name}: each tensor by itself / the best size"] = points[0][1] / best
        figures[f"{name}: one bucket / the best size"] = points[-1][1] / best
        figures[f"{name}: the best size, MB"] = min(points[1:-1], key=lambda point: point[1])[0]
    return Measured(figures, Picture("bucket, MB", "ms of a step, 16 ranks", lines))


CLAIMS = (
    Claim(
        "ddp-buckets",
        Source("Li et al.", 2020, "PyTorch distributed: experiences on accelerating data parallel training",
               "section 3.2.3 and experiments"),
        "Gradients that are reduced in buckets beside backward take less time than all at the end, and than each by "
        "itself: a size between is best, and the best one differs between NCCL and Gloo.",
        "computed",
        "ResNet-50's 161 tensors in DDP's order of buckets, a ring of 16 ranks by α-β beside a backward pass of 67 ms, "
        "over a fast and a slow network; buckets of 1 to 50 MB, each tensor by itself, and one bucket",
        1,
        buckets,
        (
            Bound("10 Gbit/s, 50 µs: one bucket / the best size", "slow network: one bucket is at least 10 % slower",
                  least=1.1, core=True),
            Bound("10 Gbit/s, 50 µs: each tensor by itself / the best size", "so is each tensor by itself",
                  least=1.1, core=True),
            Bound("100 Gbit/s, 10 µs: one bucket / the best size", "fast network: one bucket is at least 10 % slower",
                  least=1.1),
            Bound("100 Gbit/s, 10 µs: each tensor by itself / the best size", "each tensor is at least 1 % slower",
                  least=1.01,
                  otherwise="161 latencies of 0.3 ms hide behind the backward pass, and the last message is the "
                  "smallest one. On GPUs an all-reduce also competes with the computation for the card, and starting "
                  "one costs the CPU time, which α-β does not contain"),
        ),
        "data_parallel/buckets.py",
        revised="a measurement on paced ranks, on a busy machine, did not show the curve. The "
                "computation took its place; ddp-buckets-measured paces it too",
    ),
)  # fmt: skip
