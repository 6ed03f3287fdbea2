"""What differential privacy and masked sums need beside a model: accounts, secrets, keys, ledgers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
