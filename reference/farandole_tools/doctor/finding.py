"""One thing that the doctor has looked at."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing looked at: does it work, what was seen, and what mends it where it does not."""

    name: str
    works: bool
    seen: str
    mend: str = ""
