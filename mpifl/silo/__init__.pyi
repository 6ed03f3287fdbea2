from . import local as local
from .flat import (
    FlatModel as FlatModel,
    Objective as Objective,
    in_precision as in_precision,
)
from .layers import check_layers as check_layers
from .local import (
    Batch as Batch,
    Constant as Constant,
    LocalRun as LocalRun,
    LocalTraining as LocalTraining,
    Proximal as Proximal,
    steps_of as steps_of,
)
from .private import Guard as Guard, PrivateSilo as PrivateSilo
from .scoring import Score as Score, evaluate as evaluate
from .settings import EVALUATION_BATCH as EVALUATION_BATCH, LARGEST as LARGEST
from .silo import (
    RESIDUAL as RESIDUAL,
    Silo as Silo,
    held_out as held_out,
    learnable as learnable,
)
