"""Views of a record: a table in the terminal, the timeline of the ranks, curves, a page, a simulator's input.

Everything here reads finished records (`runtime.record`) and draws; nothing here trains.
"""

import logging
import warnings

# If its cache folder is not writable, matplotlib uses a temporary one, with two lines of warning each time.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", "Glyph .* missing from")  # a run's name may be in any script
