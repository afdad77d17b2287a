"""When a rank dies: what is kept, who notices, and how training goes on.

Read `state` first (what has to be kept to go on as if nothing had happened), then `checkpoint` (kept
on disk, in two slots), `checkpointer` (without standing still), `interval` (how often),
`logbook` (what happened), `replica` and `restart` (a training that can be resumed), and `supervisor`
(somebody has to start it again). `election` is about who leads when the centre is gone.
"""
