"""The updates of a parameter server: what it may do with gradients, every value of ``--update``, one row each.

`UPDATES` is the one table of them. The option, its help and its refusals, and the tests read it. A new update of
gradients is a class with the methods of `update_rules.UpdateRule` or `corrections.Correction`, and a row here; for one
that pushes parameters, the worker's part is in `contributions`, too. Nothing is imported to read it.
"""

from __future__ import annotations

from dataclasses import dataclass

RULES = "farandole.parameter_server.core.update_rules"
CORRECTIONS = "farandole.parameter_server.core.corrections"


@dataclass(frozen=True)
class Row:
    """One update.

    Attributes:
        rule: "module:class" of the rule that moves the parameters.
        rule_takes: the arguments that it is made with: fields of the options, and `values`, the table.
        correction: "module:class" of what changes a stale gradient before it counts; "": nothing does.
        correction_takes: fields of the options.
        pushes_parameters: workers push their own parameters, and not only gradients.
        rounds: rounds of pull and push in an iteration.
    """

    rule: str
    rule_takes: tuple[str, ...]
    correction: str = ""
    correction_takes: tuple[str, ...] = ()
    pushes_parameters: bool = False
    rounds: int = 1


UPDATES: dict[str, Row] = {
    "sgd": Row(f"{RULES}:SGD", ("lr",)),
    "momentum": Row(f"{RULES}:Momentum", ("values", "lr", "momentum")),
    "adagrad": Row(f"{RULES}:Adagrad", ("values", "lr")),
    "adam": Row(f"{RULES}:Adam", ("values", "lr")),
    "staleness-aware": Row(f"{RULES}:SGD", ("lr",), f"{CORRECTIONS}:StalenessAware"),
    "delay-compensated": Row(f"{RULES}:SGD", ("lr",), f"{CORRECTIONS}:DelayCompensated", ("compensation",)),
    "blend": Row(f"{RULES}:Blend", ("alpha",), pushes_parameters=True),
    "elastic": Row(f"{RULES}:Add", (), pushes_parameters=True),
    "twice": Row(f"{RULES}:Twice", ("values", "lr"), pushes_parameters=True, rounds=2),
}

# For hybrid_parameters, whose workers hold rows of a table and no whole model.
OF_GRADIENTS = tuple(name for name, row in UPDATES.items() if not row.pushes_parameters)
IN_ONE_ROUND = tuple(name for name, row in UPDATES.items() if row.rounds == 1)
