from . import (
    step as step,
    training_loop as training_loop,
)
from .batch_counts import (
    check_batches as check_batches,
    has_one_row as has_one_row,
    rows_of as rows_of,
    steps_of as steps_of,
)
from .local_fits import (
    LOCAL as LOCAL,
    Fits as Fits,
    refuse_idle as refuse_idle,
)
from .local_optimizers import (
    OPTIMIZERS as OPTIMIZERS,
    SGD as SGD,
    Batch as Batch,
    Constant as Constant,
    Correction as Correction,
    Number as Number,
    Optimizer as Optimizer,
    Proximal as Proximal,
    clip as clip,
)
from .local_settings import (
    EVALUATION_BATCH as EVALUATION_BATCH,
    LARGEST as LARGEST,
    OWN_WORK as OWN_WORK,
    BufferRule as BufferRule,
    EvaluationBatch as EvaluationBatch,
    LocalTraining as LocalTraining,
)
from .step import (
    Found as Found,
    InPlace as InPlace,
    along as along,
    by_autograd as by_autograd,
    is_plain as is_plain,
    weighed as weighed,
)
from .training import (
    Counted as Counted,
    Enough as Enough,
    Formula as Formula,
    LocalRun as LocalRun,
    Loss as Loss,
    Method as Method,
    OfOutputs as OfOutputs,
    Step as Step,
    Training as Training,
    Trains as Trains,
    without as without,
)
from .training_loop import (
    USUAL as USUAL,
    train as train,
)
