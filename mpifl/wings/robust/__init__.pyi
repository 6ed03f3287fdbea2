from . import (
    column_slices as column_slices,
    weight_rules as weight_rules,
)
from .column_rules import (
    Rule as Rule,
    rule_of as rule_of,
)
from .column_rules_run import (
    memory_of as memory_of,
)
from .column_slices import (
    ColumnsPlan as ColumnsPlan,
    Forger as Forger,
)
from .gram import (
    GramPass as GramPass,
)
from .mixing import (
    BUCKETING as BUCKETING,
    NNM as NNM,
)
from .robust_wing import (
    Combining as Combining,
    built as built,
    wing as wing,
)
from .rule_names import (
    RULES as RULES,
)
from .server_reference import (
    reference_of as reference_of,
)
from .weighing import (
    Weighing as Weighing,
)
from .weight_rules import (
    WEIGHT_RULES as WEIGHT_RULES,
    Matrix as Matrix,
    WeightRule as WeightRule,
    squared_distances as squared_distances,
    tolerated as tolerated,
)
from .weight_rules_run import (
    aggregator_of as aggregator_of,
)
