"""PyTorch's graphs as workloads: :func:`from_torch` for planning, and the backend ``tilewright`` of ``torch.compile``.

PyTorch itself is imported by what is called, not by this package.
"""

from . import elements, moving, products, rows, windows  # noqa: F401  the table of operators
from .export import TorchWorkload, from_torch
from .lower import covered

__all__ = ["TorchWorkload", "covered", "from_torch"]
