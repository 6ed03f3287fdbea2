"""Signed and sealed letters between the coordinator and a site, the link that carries them, the journal."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
