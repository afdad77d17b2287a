"""Run a program on hosts whose cards are the CPU under other names: NAME,NAME… PROGRAM [ARGUMENT ...]."""

import runpy
import sys
from pathlib import Path

import torch

from farandole.runtime import rank
from farandole.runtime.cards import detection
from farandole.runtime.cards.assignment import Card

names = sys.argv[1].split(",")
detection.usable_cards = lambda wanted, requested: ([Card(name) for name in names], "")
detection.device_of = lambda number: torch.device("cpu")
words = list(sys.argv)
rank.own_program = lambda: words  # for a process that is to do the same
sys.argv = sys.argv[2:]
runpy.run_path(str(Path(__file__).with_name(sys.argv[0])), run_name="__main__")
