"""``python -m farandole``: the command line."""

from farandole.cli import main

main()
