"""How the documentation is built: ``make docs``, or ``sphinx-build -W -b html docs docs/_build/html``.

Five parts are generated at build time, so that the pages always match the code. The committed notebooks are
copied in (with their outputs; nothing is executed here). The labs' tasks are copied in. One reference page
per room lists the room's modules. Each method has a page (`_ext.method_pages`). Names of files, notebooks and labs in
the prose become links to their pages.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PACKAGES = [ROOT / "reference" / "farandole", ROOT / "reference" / "farandole_tools"]
sys.path[:0] = [str(ROOT / "reference"), str(DOCS)]

from _ext import house, method_pages  # noqa: E402

project = "Farandole"
author = "the Farandole authors"
copyright = "the Farandole authors, Apache License 2.0"
html_title = "Farandole"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "_ext.fast_build",
    "_ext.plain_docstrings",
    "_ext.house",
    "_ext.accessible",
    "_ext.offline_math",
]
exclude_patterns = ["_build", "_ext", "Thumbs.db"]

# Two classes may have attributes of one name; a signature that names it links to neither.
suppress_warnings = ["ref.python"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nb_merge_streams = True
smartquotes_action = "qe"  # quotes and ellipses; not dashes, which options begin with

# Importing a module to document it must start no MPI.
autodoc_mock_imports = ["horovod", "mpi4py"]
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_use_type_comments = False  # there are none; searching for them takes a tenth of the build
# With 3,000 functions and classes in the table of contents, which each page searches, the build takes 50 s longer.
toc_object_entries = False
napoleon_use_ivar = True

html_theme = "furo"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["pages.css"]

house.copy_notebooks(ROOT / "notebooks", DOCS / "notebooks")
house.copy_labs(ROOT / "labs", DOCS / "labs")
house.write_reference(PACKAGES, DOCS / "reference")
method_pages.write_method_pages(ROOT, DOCS / "methods")
