from .coefficients import (
    LEVEL as LEVEL,
)
from .families import (
    OutcomeModel as OutcomeModel,
    ProportionalHazards as ProportionalHazards,
    wide_exp as wide_exp,
)
from .newton import (
    Newton as Newton,
)
from .newton_fit import (
    NewtonFit as NewtonFit,
)
from .newton_step import (
    SETTLED as SETTLED,
)
from .no_fit import (
    NoFit as NoFit,
    Reason as Reason,
)
from .score_sums import (
    RowSums as RowSums,
    columns_of as columns_of,
    predictor as predictor,
    reach_of as reach_of,
)
