from . import (
    exact_products as exact_products,
)
from .analysis_wing import (
    wing as wing,
)
from .coefficients import (
    LEVEL as LEVEL,
)
from .families import (
    OutcomeModel as OutcomeModel,
    ProportionalHazards as ProportionalHazards,
    wide_exp as wide_exp,
)
from .federation_columns import (
    OWN_SPLITS as OWN_SPLITS,
    ROUNDED as ROUNDED,
)
from .newton import (
    Newton as Newton,
)
from .score_sums import (
    RowSums as RowSums,
    predictor as predictor,
)
from .survival import (
    Cox as Cox,
    KaplanMeier as KaplanMeier,
)
from .tableone import (
    TableOne as TableOne,
)
from .whole_sums import (
    ReleasedTable as ReleasedTable,
    in_room as in_room,
    kind_of as kind_of,
)
