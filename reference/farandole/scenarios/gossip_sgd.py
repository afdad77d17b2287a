"""The former name of dpsgd, push_sum, ad_psgd, choco_sgd and central_directions (`former_names`).

Scripts that start ``python -m farandole.scenarios.gossip_sgd`` go on working:

    mpirun -n 4 python -m farandole.scenarios.gossip_sgd --method push-sum
"""

import sys

from farandole import scenarios
from farandole.former_names import GOSSIP, current_command

if __name__ == "__main__":
    _, name, *sys.argv[1:] = current_command(["run", GOSSIP, *sys.argv[1:]])
    scenario = scenarios.load(name)
    scenarios.run_as_program(scenario.Config, scenario.main)
