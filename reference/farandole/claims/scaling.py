"""Claims about the speed of synchronous data parallel: Horovod on 512 GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from farandole.claims.claim import Bound, Claim, Measured, Picture, Source
from farandole.collectives.costs import Link
from farandole.cost.cost_function import all_reduce_s
from farandole.data_parallel.buckets import cut

SIZES = (8, 32, 128, 512)  # GPUs
RANKS, BATCH = SIZES[-1], 64
ROCE = Link(10e-6, 8 / 25e9)  # 25 Gbit/s, as in the paper; its latency is not printed: 10 µs
FUSION = 16 << 20  # 64 MB of float32, Horovod's buffer
BACKWARD = 2 / 3  # of a step
# Images a second of one P100, batch 64: TensorFlow's own benchmarks of May 2017.
IMAGES = {"Inception V3": 142.0, "VGG-16": 154.0}
PUBLISHED = {"Inception V3": 0.90, "VGG-16": 0.68}
# VGG-16: channels in and out, and pixels of a side, of each convolution; then the fully connected layers.
VGG_CONVOLUTIONS = [(3, 64, 224), (64, 64, 224), (64, 128, 112), (128, 128, 112), (128, 256, 56), (256, 256, 56),
                    (256, 256, 56), (256, 512, 28), (512, 512, 28), (512, 512, 28), *[(512, 512, 14)] * 3]  # fmt: skip
VGG_CONNECTED = [(25088, 4096), (4096, 4096), (4096, 1000)]
Layers = list[tuple[int, float]]  # parameters, operations: of each layer, in the model's order


def layers(model: str) -> Layers:
    """Return a model's layers; of Inception V3, 23.8 million parameters, 48 equal ones."""
    if model == "Inception V3":
        return [(23_800_000 // 48, 1.0)] * 48
    convolutions = [(9 * a * b + b, 9.0 * a * b * side**2) for a, b, side in VGG_CONVOLUTIONS]
    return convolutions + [(a * b + b, float(a * b)) for a, b in VGG_CONNECTED]


def ready(model: Layers, step_s: float, most: int) -> list[tuple[int, float]]:
    """Return each bucket's bytes, and when backward has computed it; the first one is the last layers'."""
    total = sum(operations for _, operations in model)
    found = []
    for bucket in cut([parameters for parameters, _ in model], most):
        done = sum(operations for _, operations in model[bucket.parameters.start :]) / total
        found.append((4 * sum(model[each][0] for each in bucket.parameters), step_s * (1 - BACKWARD + BACKWARD * done)))
    return found


def finished(buckets: Sequence[tuple[int, float]], ranks: int, link: Link) -> float:
    """Return when the last bucket is reduced, one after the other, each as soon as it is computed."""
    now = 0.0
    for nbytes, at in buckets:
        now = max(now, at) + all_reduce_s("ring", ranks, nbytes, link)
    return now


def horovod() -> Measured:
    """Predict the efficiency of 512 ranks, with all messages after backward and with all that can overlap."""
    figures: dict[str, float | None] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    for model, images in IMAGES.items():
        step_s, own = BATCH / images, layers(model)
        nbytes = 4 * sum(parameters for parameters, _ in own)
        alone = {ranks: step_s / (step_s + all_reduce_s("ring", ranks, nbytes, ROCE)) for ranks in SIZES}
        beside = {ranks: step_s / finished(ready(own, step_s, FUSION), ranks, ROCE) for ranks in SIZES}
        figures[f"{model}, nothing overlaps"] = alone[RANKS]
        figures[f"{model}, all overlaps that can"] = beside[RANKS]
        middle = (alone[RANKS] + beside[RANKS]) / 2
        figures[f"{model}, distance of the printed one from the middle"] = abs(middle - PUBLISHED[model])
        for name, points in (("nothing overlaps", alone), ("all overlaps", beside)):
            lines[f"{model}, {name}"] = [(float(ranks), value) for ranks, value in points.items()]
    printed = {f"{model}, printed": [(float(RANKS), value)] for model, value in PUBLISHED.items()}
    return Measured(figures, Picture("GPUs", "efficiency", lines, printed, "x"))


CLAIMS = (
    Claim(
        "horovod-scaling",
        Source("Sergeev & Del Balso", 2018, "Horovod: fast and easy distributed deep learning in TensorFlow",
               "512 GPUs: the project's benchmarks"),
        "On 512 P100s with a link of 25 Gbit/s for each server of four, 90 % of the ideal speed is reached with "
        "Inception V3 and 68 % with VGG-16.",
        "computed",
        "α-β of the ring over 512 ranks, one link of 25 Gbit/s and 10 µs; a step's time from TensorFlow's benchmarks "
        "of a single P100 (142 and 154 images a second, batch 64); gradients of 95 and 553 MB in buffers of 64 MB. The "
        "printed figure should lie between no overlap and full overlap with backward",
        1,
        horovod,
        (
            Bound("VGG-16, nothing overlaps", "without overlap VGG-16 is below 68 %", most=0.68, core=True),
            Bound("VGG-16, all overlaps that can", "with overlap it is above", least=0.68, core=True),
            Bound("Inception V3, nothing overlaps", "without overlap Inception V3 is below 90 %", most=0.90, core=True),
            Bound("Inception V3, all overlaps that can", "with overlap it is above", least=0.90, core=True),
            Bound("VGG-16, distance of the printed one from the middle", "within 10 points of the middle", most=0.10,
                  otherwise="how much overlaps depends on the order of VGG's large layers and on the real link"),
            Bound("Inception V3, distance of the printed one from the middle", "within 10 points of the middle",
                  most=0.10),
        ),
        "cost/cost_function.py",
    ),
)  # fmt: skip
