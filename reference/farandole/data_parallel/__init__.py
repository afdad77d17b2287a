"""Data parallel: every rank holds the whole model and a share of the data.

Reading order: ``synchronous`` (the method itself), ``accumulation`` (its part of a batch in micro-batches), ``buckets``
and ``overlapped`` (while backward continues), ``mixed_precision`` with ``loss_scale`` and ``float32_layers`` (in 16
bits), ``compressed`` (in fewer bytes), ``local_sgd`` and ``diloco`` with ``outer_step`` (less often), ``agnostic``
(every rank at its own pace), ``dynamic_sync`` with ``controller`` (as often as measurements suggest),
``random_factors`` (with noise); ``horovod_twin`` and ``ddp_twin`` with ``process_group`` (the same step as Horovod and
torch's DistributedDataParallel do it); ``training`` (common to all: shards, the loop, the record), and around the steps
``learning_rate`` (``bold_driver`` follows the error instead, ``gradient_agreement`` the gradients), ``loss_log`` and
``background_metrics``, ``evaluation``, ``export``; ``search`` (many trainings, of which the best is kept); ``options``.
"""
