"""What a record looks like: a table in the terminal, the timeline of the ranks, curves, a page.

Everything here reads finished records (`runtime.record`) and draws; nothing here trains.
"""

import logging
import warnings

# Where no folder for its cache can be written, matplotlib uses a temporary one, and says so in two lines each time.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", "Glyph .* missing from")  # a run's name may be in any script
