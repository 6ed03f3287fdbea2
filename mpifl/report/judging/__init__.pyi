from . import (
    prediction_tables as prediction_tables,
)
from .evaluate import (
    as_record as as_record,
    evaluate_run as evaluate_run,
    evaluate_silos as evaluate_silos,
    tell_score as tell_score,
    write_figures as write_figures,
)
from .predict import (
    answered as answered,
    check_asked as check_asked,
    check_names as check_names,
    predict_run as predict_run,
    table_of as table_of,
)
from .silo_scores import (
    NAMES as NAMES,
    ranked as ranked,
    scores as scores,
    why_none as why_none,
)
from .suspicion import (
    Suspicion as Suspicion,
    edges as edges,
    relative_weights as relative_weights,
)
from .trained import (
    check_plugins as check_plugins,
    last_model as last_model,
    read_job_of as read_job_of,
)
