"""The options of decentralised training."""

from typing import TYPE_CHECKING

from farandole.decentralised.topologies import TOPOLOGIES
from farandole.runtime.choices import one_of

if TYPE_CHECKING:
    TopologyName = str
else:
    TopologyName = one_of(TOPOLOGIES)
