"""The colours of all pictures: told apart by people with colour-blindness too (Okabe & Ito 2008)."""

from __future__ import annotations

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#BBBBBB",
)  # fmt: skip

SERIES = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW)
ACTIVITY = {"compute": BLUE, "communicate": ORANGE, "wait": GREY}
