"""All six ways to divide a training at once: data, shard, pipeline, expert, context and tensor, in any factorisation.

Nothing here divides anything itself. Each axis is a room or a folder of its own, and this room puts them together:

    tensor     `model_parallel.tensor`     the matrices of a layer
    context    `model_parallel.context`    ring attention between the positions of a sequence
    expert     `model_parallel.expert`     a mixture in place of a block's feed-forward network
    pipeline   `model_parallel.executor`   stages, and the schedule by which they work
    shard      `sharded.unit`              parameters, gradients and optimizer state (ZeRO-3)
    data       `sharded.unit`              the sum of the gradients of all ranks with the same parameters

Reading order: `model_parallel.grid` (which rank stands where), then ``options``, ``layers`` (a layer over three axes),
``units`` (parameters over shard and data), ``training`` (a step over all six) with ``batches``, ``run`` (all steps);
``pieces`` (which part of the unsplit model a rank holds), ``traffic`` and ``memory`` (bytes sent and held, by
formula) with ``unit_sizes``.
"""
