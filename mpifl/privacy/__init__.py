"""What differential privacy needs beside a model: settings, an accountant, a site's secret, its ledger."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
