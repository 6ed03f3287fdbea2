"""Files of tables: CSV, Parquet and Arrow, packed or in folders, read piece by piece in bounded memory."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
