"""What rank 0 holds: the state of the algorithm, its models, its optimizer."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
