"""The help of a scenario in panels: after the launch its own options, and last those of every run.

A Config inherits most of its options. Each class that declares some has a panel, named by its docstring's first line.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from farandole.runtime.options import RunOptions


def in_panels(config_type: type[RunOptions]) -> type[RunOptions]:
    """Return a subclass of a Config with the same options, each in the panel of the class that first declares it.

    An option that a subclass declares again, with another default, stays in that panel.
    """
    types = get_type_hints(config_type, include_extras=True)
    body: dict[str, Any] = {"__annotations__": {}, "__doc__": config_type.__doc__, "__module__": config_type.__module__}
    classes = [*reversed([*enumerate(config_type.__mro__)])]
    for each in fields(config_type):
        order, declaring = next(
            (place, kind) for place, kind in classes if each.name in vars(kind).get("__annotations__", {})
        )
        panel = Group((declaring.__doc__ or "").partition("\n")[0].rstrip("."), sort_key=order)
        body["__annotations__"][each.name] = Annotated[types[each.name], Parameter(group=panel)]
        given: dict[str, Any] = {"default": each.default, "default_factory": each.default_factory}
        body[each.name] = field(**{name: value for name, value in given.items() if value is not MISSING})
    panelled: type[RunOptions] = dataclass(frozen=True, kw_only=True)(type("Config", (config_type,), body))
    return Parameter(name="*")(panelled)
