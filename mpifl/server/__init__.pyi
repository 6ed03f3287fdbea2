from .optimizers import OPTIMIZERS as OPTIMIZERS, SGD as SGD, ServerOptimizer as ServerOptimizer
from .selection import (
    DRAWN_BY_EXAMPLES as DRAWN_BY_EXAMPLES,
    POISSON as POISSON,
    SELECTIONS as SELECTIONS,
    WITHOUT_LOSSES as WITHOUT_LOSSES,
    Draw as Draw,
    Selection as Selection,
    load_selection as load_selection,
    select as select,
)
from .server import Server as Server, scored_here as scored_here
