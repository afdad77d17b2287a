"""An examination of this machine: what works, what does not, and the remedy.

``checks`` examines Python, torch, MPI, Horovod, Slurm and Jupyter; ``command`` is ``farandole doctor``, which shows the
findings.
"""
