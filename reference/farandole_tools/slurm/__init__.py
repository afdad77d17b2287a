"""A real Slurm cluster on one machine, to try job scripts before they meet a real queue.

Read `sandbox.py` first: what a cluster consists of, and how one is started, used and ended. Beside it,
`layout.py` is what lies on the disk, and `processes.py` finds and ends what belongs to a sandbox. The
commented configuration is in the checkout's slurm/sandbox/, the job scripts are in slurm/, and the
commands are `farandole slurm up`, `status` and `down`.
"""
