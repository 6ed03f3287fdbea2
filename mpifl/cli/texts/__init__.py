"""Language models of finished runs: how they go on with texts, and their export as Hugging Face's."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
