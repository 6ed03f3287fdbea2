from . import (
    column_slices as column_slices,
    weight_rules as weight_rules,
)
from .column_slices import (
    ColumnsPlan as ColumnsPlan,
)
from .gram import (
    GramPass as GramPass,
)
from .robust_wing import (
    Combining as Combining,
    built as built,
    wing as wing,
)
from .rule_names import (
    RULES as RULES,
)
from .weight_rules import (
    WEIGHT_RULES as WEIGHT_RULES,
    Matrix as Matrix,
    WeightRule as WeightRule,
    squared_distances as squared_distances,
)
from .weight_rules_run import (
    aggregator_of as aggregator_of,
)
