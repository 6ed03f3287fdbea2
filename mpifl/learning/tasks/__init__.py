"""Tasks: by which loss a model is trained, and by which metrics it is judged."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
