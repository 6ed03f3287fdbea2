from .registry import (
    OVER_SITES as OVER_SITES,
    WINGS as WINGS,
    wings_at as wings_at,
    wings_of as wings_of,
)
