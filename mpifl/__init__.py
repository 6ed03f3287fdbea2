"""Federated learning over MPI: one model, trained on data that may not leave its silos."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.2.0"
