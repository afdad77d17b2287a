"""A training loop of the user's own, made distributed: five lines change, and the first of them names the method.

loop           what the user calls: the model, the optimizer, the batches, the record
loop_method    what a method does around the batches
synchronous    the mean gradient of all ranks, by an all-reduce in each step
local_sgd      ranks that train apart, and average their parameters now and then
gossip         ranks that average with their neighbours only
server         workers that pull parameters and push gradients
backup         the synchronous method, and survivors that continue after a death
"""
