"""``make gpu-check``: run the plan on this machine's cards, and write the record after each part.

Exit code 0: everything passed; 1: something failed, and the record shows what; 2: there is no card that torch can use.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from farandole.errors import UsageError
from farandole.runtime.files import write
from farandole_tools.gpu_check import execution, plan, report

CHECKOUT = Path(__file__).parents[3]
INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make gpu-check", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("gpu-check"), help="where the record is written")
    parser.add_argument("--without-tests", action="store_true", help="leave out the GPU tests, which take longest")
    given = parser.parse_args(arguments)
    try:
        machine = execution.machine(CHECKOUT)
    except UsageError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return 2
    folder = given.folder / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    checks = plan.checks(len(machine["cards"]), folder.resolve(), with_tests=not given.without_tests)
    ended: list[execution.Outcome] = []
    try:
        for check in checks:
            if execution.refused_before(check, ended):
                continue
            print(f"{check}: ", end="", flush=True)
            ended.append(execution.run(check, CHECKOUT))
            print(ended[-1], flush=True)
            write(folder / "record.md", report.markdown(machine, ended))
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        if ended:
            print(f"record: {folder / 'record.md'} (attach it to an issue)")
    return int(any(each.state == "failed" for each in [*ended, *report.agreement(ended)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
