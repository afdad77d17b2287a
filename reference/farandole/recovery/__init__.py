"""When a rank dies: what is kept, who notices, and how training goes on.

Read `minimal` first: a whole training that survives the death of ranks, in one file. Then `state` (what
has to be kept to go on as if nothing had happened), and how it is kept on disk: `checkpoint` (in two
slots), `checkpointer` (without standing still), `interval` (how often), `replica` and `batches` (a
training that can be resumed), `restart` (the ranks start again) and `supervisor` (somebody has to start
them). Then how to go on without a new start: `view` and `membership` (who is left),
`fault_tolerant_training` and `data_parallel` (a training on top of it), `join_request` (one more, by
request), `heartbeat` (who hangs), `buddies` and `backup` (copies in each other's memory), `on_disk`
(behind them), `pipeline` (of its stages). `elastic_horovod`, `horovod_driver` and `horovod_hosts` are
Elastic Horovod's way. `election` is about who leads when the coordinator is gone, `event_log` holds what
happened.
"""
