"""A link over HTTPS: the coordinator's server of letters, and the site's end, which opens all connections."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
