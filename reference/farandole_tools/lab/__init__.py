"""The labs: a reader writes the method, and the checks judge it on real ranks.

A lab is a folder in the repository's labs/: the task, a notebook, the file to complete, and
``check.py``, which says what is checked and for how many points. Submissions run in processes of their own, neither
in the one that grades nor in those that judge.

Reading order: ``labs`` (what a lab and a check are), ``communicator`` (what the learner's code
sends with), ``rank_status`` and ``deadlock_detector`` (which rank waits for which: how a deadlock is
detected and reported), ``learner`` (imports the code of a learner and explains its errors), ``runner``
(one rank of a launch), ``launch`` (a launch, and what its ranks leave), ``grading`` (as many launches as
it takes), ``contained`` (the sandbox of a submission, and the calls between it and the checks),
``submissions`` (a learner's files), ``mutants`` (known wrong answers), ``tables`` (grades for the eye). For a
class: ``course`` (the commands), ``entries`` (what is in a folder of submissions), ``gradebook`` (its results),
``suspicions`` (what a person should look at), ``bundle`` (what students get), ``hints`` (and a learner's
progress). Apart from these: ``instrumented_network`` and ``background``, on which lab 4 is written;
``half_network`` and ``summing``, on which lab 5 is; ``disk``, on which lab 10 is; ``ulfm_communicator``,
``over_mpi``, ``rank_threads``, ``simulated_rank`` and ``simulated_ranks``, ``small_training``, ``recorded_training``
(beside the submission) and ``watched_training`` (beside the checks), on which lab 12 is; ``slow_link``, on which lab 15
is; ``single_process``, ``collective_calls`` and ``loop``, on which lab 16 is.
"""

from farandole_tools.lab.labs import Check, Lab, expect

__all__ = ["Check", "Lab", "expect"]
