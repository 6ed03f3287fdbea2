"""A site's own folder: its keys, its ledgers, and encryption with its secret."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
