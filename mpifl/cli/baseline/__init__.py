"""Each silo alone, all pooled, and the federated model, scored on the same rows."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
