"""The former name `gossip_sgd`, which is still accepted: its option --method told which of five scenarios was meant.

    gossip_sgd                          dpsgd
    gossip_sgd --compressor top-k       choco_sgd --compressor top-k
    gossip_sgd --method push-sum        push_sum

A name that stands for one scenario only is an alias in the row of `methods.METHODS`; gossip_sgd alone is one of dpsgd.
Records of gossip_sgd are read as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from farandole.runtime import choices
from farandole.runtime.command_line import to_arguments

GOSSIP = "gossip_sgd"
METHODS = {
    "d-psgd": "dpsgd",
    "push-sum": "push_sum",
    "ad-psgd": "ad_psgd",
    "central-directions": "central_directions",
}


def current(scenario: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the scenario and the options that these stand for today; those of other scenarios are unchanged.

    What gossip_sgd did not accept either is left to the scenario to refuse.
    """
    rest = dict(options)
    if scenario != GOSSIP or rest.get("method", "d-psgd") not in METHODS:
        return scenario, rest
    scenario = METHODS[rest.pop("method", "d-psgd")]
    if rest.get("compressor") == "none":
        del rest["compressor"]
    return ("choco_sgd" if scenario == "dpsgd" and "compressor" in rest else scenario), rest


def current_command(words: Sequence[str]) -> list[str]:
    """Return a command line in which gossip_sgd is called by its present names, and advise to use these."""
    names = [*takewhile(lambda word: not word.startswith("-"), words)]
    if words[:1] not in (["run"], ["compare"]) or GOSSIP not in names[1:]:
        return [*words]
    given: dict[str, str] = {}
    others: list[str] = []
    options = iter(words[len(names) :])
    for word in options:
        option, equals, value = word.partition("=")
        if option in ("--method", "--compressor"):
            given[option.removeprefix("--")] = value if equals else next(options, "")
        else:
            others.append(word)
    scenario, kept = current(GOSSIP, given)
    if len(names) > 2 and "compressor" in given:
        kept["compressor"] = given["compressor"]  # the methods that it is compared with may have the option, too
    if scenario != GOSSIP:
        old = " ".join([GOSSIP, *to_arguments(given)])
        choices.advise(f"{old} is called {scenario} now; the old word is still accepted")
    return [*(scenario if name == GOSSIP else name for name in names), *others, *to_arguments(kept)]
