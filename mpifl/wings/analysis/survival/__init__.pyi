from .cox import (
    Cox as Cox,
)
from .kaplanmeier import (
    KaplanMeier as KaplanMeier,
)
