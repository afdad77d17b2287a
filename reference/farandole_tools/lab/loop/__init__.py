"""Lab 16, a training loop on several ranks: its checks, and what runs beside the submission.

    process of the checks (a rank under MPI)            process of the submission
    checks, gradients, kills                            harness ──→ the submission
    watch, CollectiveCommunicator ←──── calls ────────→ models, jobs, torch.save

Models, optimizers and jobs stay in the submission's process, where `harness` makes them from a seed. What crosses to
the checks is arrays, numbers and names. `expected` computes what is right in one process and `mistakes` what usual
mistakes give, `watch` compares a training step by step, and `kills` kills and restarts trainings (`rank` is one rank).
"""
