from .codecs import (
    CODECS as CODECS,
    Cast as Cast,
    Codec as Codec,
)
from .compression_wing import (
    codec_of as codec_of,
    wing as wing,
)
from .payloads import (
    Compression as Compression,
)
