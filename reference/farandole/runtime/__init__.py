"""The machinery that runs an algorithm: processes, buffers, faults, traces and records.

The launching side imports no MPI: ``mpirun`` (which MPI is here and how it is called), ``launcher``
(start, watch, end), ``rank_starter`` (the hook by which ranks may start sooner), ``magic`` (the ``%%mpi``
cell), ``record`` (what a run leaves behind).
The rank's side: ``rank`` (the first and last thing a process does), ``world`` (one process's place
in the launch), ``communicator`` (the one place where messages leave and are counted),
``buffers``, ``devices``, ``faults``, ``chaos``, ``stop_request``, ``trace``, ``clock``, ``watchdog``, ``recorder``,
``summary``, ``board`` (TensorBoard), ``addresses`` (by which other hosts reach this one); for links that lose messages
``lossy``, ``reliable`` and ``reliable_communicator``.
Read ``launcher``, then ``world``, then ``communicator``.
"""
