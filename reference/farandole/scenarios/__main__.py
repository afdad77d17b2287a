"""A rank of a launch: ``python -m farandole.scenarios MODULE [OPTION ...]`` runs the scenario in this module.

``python -m farandole.scenarios.sync_sgd`` does the same. But it executes the module anew as ``__main__``: making its
Config takes each rank 5 ms, though the process that it was forked from has imported the module (`rank_starter`).
"""

import importlib
import sys

from farandole.scenarios import run_as_program

module = importlib.import_module(sys.argv.pop(1))
run_as_program(module.Config, module.main)
