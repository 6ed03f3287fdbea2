"""What binds a run over sites: the signed invitation, each site's list of sites, and its consent."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
