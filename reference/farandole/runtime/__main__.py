"""``mpirun -n 4 python -m farandole.runtime PROGRAM``: a program as the launcher's ranks run it."""

from farandole.runtime import warm

warm.ask()

from farandole.runtime.rank import main  # noqa: E402

main()
