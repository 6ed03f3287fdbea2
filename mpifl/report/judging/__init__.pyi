from . import (
    paired as paired,
    prediction_tables as prediction_tables,
)
from .answers import (
    answered as answered,
)
from .evaluate import (
    as_record as as_record,
    evaluate_run as evaluate_run,
    evaluate_shards as evaluate_shards,
    evaluate_silos as evaluate_silos,
    tell_score as tell_score,
    tell_threshold as tell_threshold,
    write_figures as write_figures,
)
from .given_shards import (
    PredictedShards as PredictedShards,
    check_classes as check_classes,
    check_fit as check_fit,
    check_names as check_names,
    columns_seen as columns_seen,
    learned_from as learned_from,
    shards_at as shards_at,
)
from .mask_files import (
    MaskFiles as MaskFiles,
)
from .paired import (
    FEW as FEW,
    Exchanged as Exchanged,
    by_draws as by_draws,
    drawn as drawn,
    exchanged as exchanged,
    exchanged_in_mean as exchanged_in_mean,
    fewest as fewest,
    spread as spread,
)
from .predict import (
    check_asked as check_asked,
    predict_pieces as predict_pieces,
    predict_run as predict_run,
    table_of as table_of,
)
from .row_figures import (
    RowFigures as RowFigures,
    figures_of_rows as figures_of_rows,
)
from .rule_weights import (
    WHY_FAR as WHY_FAR,
    WHY_LITTLE as WHY_LITTLE,
    edges_of_silos as edges_of_silos,
    suspects as suspects,
    weights_of_silos as weights_of_silos,
)
from .silo_scores import (
    NAMES as NAMES,
    NONE_HELD_OUT as NONE_HELD_OUT,
    counts_in as counts_in,
    evaluates as evaluates,
    expects_scores as expects_scores,
    ranked as ranked,
    scores as scores,
    unscored as unscored,
    weights_told as weights_told,
    why_none as why_none,
)
from .suspicion import (
    Suspicion as Suspicion,
)
from .trained import (
    OwnModel as OwnModel,
    Trained as Trained,
    Which as Which,
    check_plugins as check_plugins,
    model_file as model_file,
    module_of as module_of,
    read_job_of as read_job_of,
    tell_weights as tell_weights,
    told_model as told_model,
)
