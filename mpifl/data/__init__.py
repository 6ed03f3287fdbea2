"""From a silo's shard on disk to the batches that a model sees."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
