from .aggregation_table import (
    BY_COLUMNS as BY_COLUMNS,
    BY_WEIGHTS as BY_WEIGHTS,
    OF_RULES as OF_RULES,
    RULE_NAMES as RULE_NAMES,
    AggregationSettings as AggregationSettings,
    with_uniform_weights as with_uniform_weights,
)
from .cohort_selection import (
    POISSON as POISSON,
    SELECTIONS as SELECTIONS,
    WITHOUT_LOSSES as WITHOUT_LOSSES,
    Draw as Draw,
    load_selection as load_selection,
    select as select,
)
from .cohort_table import (
    CohortTable as CohortTable,
)
from .job_tables import (
    Checkpoint as Checkpoint,
    Data as Data,
    Evaluate as Evaluate,
    Model as Model,
    Tracking as Tracking,
)
from .privacy_table import (
    PrivacySettings as PrivacySettings,
)
from .security_table import (
    SecuritySettings as SecuritySettings,
)
from .transform_tables import (
    OWN_KEYS as OWN_KEYS,
    AttackSettings as AttackSettings,
    CompressionSettings as CompressionSettings,
)
