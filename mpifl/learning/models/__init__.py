"""The papers' models by name, and the user's own by `package.module:factory`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
