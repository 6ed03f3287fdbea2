from .kaplanmeier import (
    KaplanMeier as KaplanMeier,
)
