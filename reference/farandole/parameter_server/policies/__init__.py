"""When gradients count: every way of updating that the documents name, one file each.

A policy decides two things and nothing else: who may start, and which gradients move the parameters
now. Reading order: ``policy`` (the vocabulary), ``minibatch``, ``stale``, ``asynchronous``,
``half``, ``partial``, ``dynamic``, ``history``.
"""

from __future__ import annotations

from farandole.parameter_server.policies.asynchronous import Asynchronous
from farandole.parameter_server.policies.dynamic import Dynamic
from farandole.parameter_server.policies.half import Half
from farandole.parameter_server.policies.history import History
from farandole.parameter_server.policies.minibatch import Minibatch
from farandole.parameter_server.policies.partial import Partial
from farandole.parameter_server.policies.policy import Action, Apply, Drop, Policy, Push
from farandole.parameter_server.policies.stale import Stale

__all__ = [
    "Action",
    "Apply",
    "Asynchronous",
    "Drop",
    "Dynamic",
    "Half",
    "History",
    "Minibatch",
    "Partial",
    "Policy",
    "Push",
    "Stale",
]
