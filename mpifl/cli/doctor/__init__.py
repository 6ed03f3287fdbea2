"""What would hurt a training here, found before it does: the command `mpifl doctor`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
