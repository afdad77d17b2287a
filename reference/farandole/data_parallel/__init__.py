"""Data parallel: every rank holds the whole model and a share of the data.

Reading order: ``synchronous`` (the method itself), ``horovod_twin`` and ``ddp_twin`` (the same
step as Horovod and torch's DistributedDataParallel do it), ``training`` (what all three share:
shards, the loop, the record, the evaluation), ``options``.
"""
