"""Federated learning over MPI: one model, trained on data that may not leave its silos."""

import sys

sys.version_info >= (3, 10) or sys.exit(  # type: ignore[func-returns-value]
    f"error: mpifl needs Python 3.10 or newer, and this is {sys.version.split()[0]} ({sys.executable})"
)
import lazy_loader  # noqa: E402

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.2.0"
