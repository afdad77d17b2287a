"""When a rank dies: what is kept, who notices, and how training goes on.

In order of reading, half an hour from end to end:

1. `minimal`: a whole training that survives the death of ranks, in one file.
2. `protection`: what every method does, protect, secure, regroup and restore; and `state`, what has to be kept to
   continue bitwise as if nothing had happened.
3. `restart` with `checkpoint_protection`: all ranks start again. Beneath it `checkpoint` (two slots on disk),
   `checkpointer` (without standing still), `interval` (how often) and `supervisor` (starts the job again).
4. `view` and `membership`: the survivors agree on who is left. `fault_tolerant_training` is the one loop on top of
   it, `data_parallel` says what a step is, and `membership_protection` lets them continue with what the living know.
5. `backup` with `buddies` (`surviving_copies`): copies in each other's memory, behind them `on_disk`; `pipeline` with
   `stage_backup`: the same for a pipeline's stages.
6. Beside them: `admission` (a process that comes later is brought in), `join_request` (from outside), `heartbeat`
   (hung ranks), `event_log` (what happened), `election` (who leads), `replica` and `batches` (what is trained, and on
   what), `options`. Elastic Horovod's way: `elastic_horovod`, `horovod_driver`, `horovod_workers`, `horovod_hosts`.
"""
