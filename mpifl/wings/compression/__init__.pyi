from .codecs import (
    CODECS as CODECS,
    Cast as Cast,
    Codec as Codec,
)
from .payloads import (
    Compression as Compression,
)
