"""``mpirun -n 4 python -m farandole.runtime PROGRAM``: a program as the launcher's ranks run it."""

from farandole.runtime import rank_starter

rank_starter.run()

from farandole.runtime.rank import main  # noqa: E402

main()
