"""A training loop of the user's own, made distributed: five lines change, and the first of them names the method.

    loop           what the user calls: the model, the optimizer, the batches, the record
    parts          this rank's part of each batch
    loop_method    what a method does around the batches
    synchronous    the mean gradient of all ranks, by an all-reduce in each step
    apart          ranks that take their own steps: what the next four share
    local_sgd      all average their parameters now and then
    diloco         all follow an outer optimizer now and then, by the mean of their moves
    gossip         each averages with its neighbours only
    server         workers pull parameters and push gradients; the servers step
    backup         the synchronous method, and survivors that continue after a death
    trees          what optimizers and schedules remember, as tensors and numbers

Read `loop` and `synchronous` first; the others replace the second.
"""
