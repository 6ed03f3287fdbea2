from .batch_counts import check_batches as check_batches, steps_of as steps_of, why_one_row as why_one_row
from .columns import Bottom as Bottom, ColumnSilo as ColumnSilo, in_order as in_order
from .dtypes import check_tensors as check_tensors
from .fits import LOCAL as LOCAL, Fits as Fits
from .flat import (
    FlatModel as FlatModel,
    Objective as Objective,
    in_precision as in_precision,
)
from .half import Half as Half, begun as begun, order as order
from .lanes import ALONE as ALONE, Lanes as Lanes
from .layers import check_layers as check_layers
from .local import train as train
from .optimizers import OPTIMIZERS as OPTIMIZERS, Batch as Batch, Constant as Constant, Proximal as Proximal
from .parts import (
    PartOf as PartOf,
    Parts as Parts,
    Sums as Sums,
    Takes as Takes,
    take_here as take_here,
)
from .private import Guard as Guard, PrivateSilo as PrivateSilo
from .rules import rules_of as rules_of
from .scoring import (
    Score as Score,
    Scoring as Scoring,
    as_fits as as_fits,
    evaluate as evaluate,
    short_of_memory as short_of_memory,
)
from .settings import (
    EVALUATION_BATCH as EVALUATION_BATCH,
    LARGEST as LARGEST,
    BufferRule as BufferRule,
    EvaluationBatch as EvaluationBatch,
    LocalTraining as LocalTraining,
    SiloSettings as SiloSettings,
)
from .shares import Share as Share, score_of as score_of, share_of as share_of, width_of as width_of
from .silo import RESIDUAL as RESIDUAL, Silo as Silo
from .splits import held_out as held_out, learnable as learnable
from .step import counted_of as counted_of
from .together import (
    Failed as Failed,
    Outcome as Outcome,
    train_together as train_together,
    why_apart as why_apart,
)
from .training import (
    Counted as Counted,
    LocalRun as LocalRun,
    Loss as Loss,
    Training as Training,
    Trains as Trains,
)
from .vertical import UNSPLIT as UNSPLIT, VerticalSettings as VerticalSettings
from .wrapped import unwrapped as unwrapped
