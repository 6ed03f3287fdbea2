from . import (
    exact_products as exact_products,
)
from .analysis_wing import (
    wing as wing,
)
from .dp_table import (
    DPTable as DPTable,
)
from .federation_columns import (
    OWN_SPLITS as OWN_SPLITS,
    ROUNDED as ROUNDED,
    levels_of as levels_of,
    told_of as told_of,
)
from .regression import (
    LEVEL as LEVEL,
    Newton as Newton,
    NewtonFit as NewtonFit,
    NoFit as NoFit,
    OutcomeModel as OutcomeModel,
    ProportionalHazards as ProportionalHazards,
    Reason as Reason,
    RowSums as RowSums,
    columns_of as columns_of,
    predictor as predictor,
    reach_of as reach_of,
    wide_exp as wide_exp,
)
from .survival import (
    Cox as Cox,
    KaplanMeier as KaplanMeier,
)
from .tableone import (
    TableOne as TableOne,
)
from .whole_sums import (
    EXACT as EXACT,
    OneTable as OneTable,
    ReleasedTable as ReleasedTable,
    WholeSums as WholeSums,
    given_of as given_of,
    in_room as in_room,
    kind_of as kind_of,
)
