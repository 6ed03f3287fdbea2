from . import local as local
from .flat import (
    FlatModel as FlatModel,
    Objective as Objective,
    in_precision as in_precision,
)
from .local import (
    Batch as Batch,
    Constant as Constant,
    LocalRun as LocalRun,
    LocalTraining as LocalTraining,
    Proximal as Proximal,
)
from .scoring import Score as Score, as_fits as as_fits, evaluate as evaluate
from .settings import (
    EVALUATION_BATCH as EVALUATION_BATCH,
    LARGEST as LARGEST,
    EvaluationBatch as EvaluationBatch,
)
from .silo import RESIDUAL as RESIDUAL, Silo as Silo
from .splits import held_out as held_out, learnable as learnable
