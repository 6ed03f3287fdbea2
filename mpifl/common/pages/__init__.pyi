from . import (
    charts as charts,
)
from .maps import (
    heat as heat,
    ramp as ramp,
    strips as strips,
)
from .parts import (
    MOST_OPEN as MOST_OPEN,
    Block as Block,
    Cell as Cell,
    Figure as Figure,
    Fold as Fold,
    Grid as Grid,
    HowTo as HowTo,
    Key as Key,
    Mark as Mark,
    Place as Place,
    Plot as Plot,
    Said as Said,
    Table as Table,
    Terms as Terms,
    bars as bars,
    folded as folded,
    there as there,
)
from .png import (
    BLUES as BLUES,
    DIVERGING as DIVERGING,
    WORST_TO_BEST as WORST_TO_BEST,
    address as address,
    coloured as coloured,
    encoded as encoded,
)
from .rendering import (
    NEXT as NEXT,
    check_page as check_page,
    render as render,
    write_page as write_page,
)
from .tick_names import (
    across as across,
    named as named,
    numbered as numbered,
)
