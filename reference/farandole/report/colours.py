"""The colours of all pictures: told apart by people with colour-blindness too (Okabe & Ito 2008)."""

from __future__ import annotations

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442", "#BBBBBB",
)  # fmt: skip

SERIES = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW)
# For more lines than that: neighbours in the list differ in hue or in brightness, for colour-blind people too. The
# first are those of SERIES without yellow, the others are Tol's "muted" and dark tones (Tol 2021).
MANY = (
    BLUE, ORANGE, GREEN, RED, PURPLE, SKY,
    "#332288", "#999933", "#882255", "#44AA99", "#AA4499", "#117733", "#CC6677", "#7F4F24", "#222222",
    "#6699CC", "#997700", "#994455",
)  # fmt: skip
ACTIVITY = {"compute": BLUE, "communicate": ORANGE, "wait": GREY}
