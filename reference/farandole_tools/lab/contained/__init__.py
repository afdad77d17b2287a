"""A submission in a process apart: the checks judge it, and its code never enters the process that they run in.

    process of the checks (a rank under MPI)                 sandbox of that rank
    comm, counts, expected values        ←── `wire` ──→      the submission

`start` builds the sandbox and starts a program in it; `sandbox` says what is visible there, and which of the machine's
means there are. `kit` is what a submission can import. `guest` runs inside, `host` in the process of the checks. For
labs with torch `fork_server` starts a process that has imported it (`forks`), and sandboxes are forked from that one.
"""
