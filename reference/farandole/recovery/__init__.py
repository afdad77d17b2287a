"""Recovery: what is saved for the death of a rank, how a death is detected, and how training continues.

In order of reading, half an hour from end to end:

1. `minimal`: a whole training that survives the death of ranks, in one file.
2. `protected_training`: the one loop, given a `Trainable` (`data_parallel`, `pipeline`) and a `Protection`
   (`protection`). `state` has all that a bitwise equal continuation needs.
3. `restart` with `checkpoint_protection`: all ranks start again. Beneath it `checkpoint` (two slots on disk),
   `checkpointer` (in the background), `interval` (how often) and `supervisor` (starts the job again).
4. `membership` with `view` and `member_group`: the survivors agree on the live ranks. `fault_tolerant_training` puts it
   around the loop, and with `membership_protection` the survivors continue from their own state; `elastic_diloco`:
   the same where they hear of each other only at an outer step.
5. `backup` with `buddies` (`surviving_copies`): copies in each other's memory, behind them `on_disk`; `stage_backup`:
   the same for a pipeline's stages.
6. A process that joins: `admission` and `member_changes`; requested from outside, `join_request`.
7. Beside them: `heartbeat` (hung ranks), `retry` (failed steps), `adaptive_rate`, `event_log` and `training_record`
   (what happened), `election`, `replica` and `batches` (the model and the data), `options`. Elastic Horovod:
   `elastic_horovod`, `horovod_world`, `horovod_driver`, `horovod_workers`, `horovod_hosts`.
"""
