from .registry import (
    WINGS as WINGS,
    wings_of as wings_of,
)
