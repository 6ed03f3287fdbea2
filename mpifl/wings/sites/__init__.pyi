from . import (
    letters as letters,
)
