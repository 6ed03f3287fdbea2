from .base import (
    HELD_OUT as HELD_OUT,
    Observer as Observer,
    Record as Record,
    judged as judged,
    reached as reached,
    spread as spread,
)
from .configured import check_packages as check_packages, observers as observers
from .console import PLAIN as PLAIN, figures_of as figures_of, on_terminal as on_terminal
