"""Online incremental training on a drifting stream, while predictions are served.

Document 000: workers take samples as they come, real digits that turn more and more. Each batch is
first predicted and then learned from (test-then-train), so every sample is used once for each. A
reader, the last rank, takes the parameters from the servers every --publish-every seconds and
answers held-out samples with them. A copy of the model that stops learning early shows the drift.

The record's test_accuracy is the share of samples predicted right before they were learned from,
over the batches that end in the last tenth of the stream. metrics.jsonl also has test_then_train,
frozen (the copy that no longer learns) and angle; serving.jsonl has what the reader has answered.

    farandole run online -n 6 --sync async --samples 20000 --degrees 90
    farandole run online -n 6 --rate 4000 --publish-every 2
    farandole run online -n 7 --servers 2 --sync ssp --staleness 4
    mpirun -n 4 python -m farandole.scenarios.online --readers 0
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.parameter_server.online_options import OnlineOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(OnlineOptions):
    """Options of online."""


def main(config: Config) -> None:
    from farandole.parameter_server.online import train
    from farandole.report.table import print_summary

    print_summary(train("online", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
