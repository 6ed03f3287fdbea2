from .codecs import (
    CODECS as CODECS,
    Codec as Codec,
)
from .compression_wing import (
    codec_of as codec_of,
    wing as wing,
)
