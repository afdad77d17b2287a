"""The end of a rank: its program's exit functions run, torch's own do not."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import atexit, os, sys, tempfile

@atexit.register  # the first to be registered is the last to be called
def tell() -> None:
    print(os.path.exists(folder.name), "tabulate" in sys.modules, torch.ops.farandole.twice(torch.ones(())).item())

import torch, torch._dynamo
from farandole.runtime import rank_end

folder = tempfile.TemporaryDirectory()
library = torch.library.Library("farandole", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: 2 * x, "CPU")
rank_end.end()
"""


def test_a_programs_folder_is_removed_and_torchs_operators_stay_registered() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("False False 2.0\n", "", 0)
