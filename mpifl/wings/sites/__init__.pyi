from . import (
    consents as consents,
    letters as letters,
)
