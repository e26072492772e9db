# The site's settings, for Sphinx; scripts/site builds it.
import importlib.metadata

project = "Tilewright"
author = "The Tilewright authors"
copyright = "the Tilewright authors, Apache-2.0"
release = importlib.metadata.version("tilewright")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_pictures"]
myst_heading_anchors = 3
highlight_language = "none"
nitpicky = False  # signatures name types of NumPy, pandas and matplotlib, whose pages are not read
suppress_warnings = ["misc.highlighting_failure"]  # code with an ellipsis is shown plain
autodoc_member_order = "bysource"
autodoc_typehints = "none"

html_theme = "furo"
html_title = "Tilewright"
