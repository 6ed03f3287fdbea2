from .first_ask import (
    check_first_ask as check_first_ask,
)
from .first_score import (
    check_first_score as check_first_score,
)
from .first_step import (
    Learner as Learner,
    check_first_step as check_first_step,
)
from .given_job import (
    Given as Given,
    resolved as resolved,
    source_of as source_of,
    told_of as told_of,
)
from .lent_models import (
    models_of as models_of,
)
from .rank_bits import (
    BITS as BITS,
    PROCESSOR as PROCESSOR,
    about_bits as about_bits,
    about_plain as about_plain,
    differing as differing,
    moved as moved,
)
from .run_checks import (
    augment_of as augment_of,
    check_layout as check_layout,
    check_told as check_told,
    check_wings as check_wings,
    parameters_of as parameters_of,
    plan_wings as plan_wings,
    splits_of as splits_of,
    validate_job as validate_job,
)
from .shard_files import (
    broken_files as broken_files,
    notes_on_broken as notes_on_broken,
)
from .start_notes import (
    notes_at_start as notes_at_start,
    told_at_start as told_at_start,
)
