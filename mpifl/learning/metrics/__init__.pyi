from .answer_counts import (
    AnswerCounts as AnswerCounts,
)
from .catalogue import (
    CLASSES as CLASSES,
    LABELS as LABELS,
    RISKS as RISKS,
    TOKENS as TOKENS,
    VALUES as VALUES,
    VOXELS as VOXELS,
    YES_OR_NO as YES_OR_NO,
    Chosen as Chosen,
    MetricEntry as MetricEntry,
    choose as choose,
    names_in as names_in,
    plugin as plugin,
)
from .metric import (
    ACCURACY as ACCURACY,
    Metric as Metric,
    MetricInfo as MetricInfo,
)
from .metric_states import (
    computed as computed,
    read_states as read_states,
    summable as summable,
    update_metrics as update_metrics,
    write_states as write_states,
)
from .places import (
    are_codes as are_codes,
)
from .pooled_metrics import (
    COUNTS as COUNTS,
    answers_told as answers_told,
    certainty as certainty,
    counted as counted,
    fill as fill,
    joined as joined,
    pack_states as pack_states,
    pooled as pooled,
    real_states as real_states,
    single_scores as single_scores,
    state_lengths as state_lengths,
)
from .score_slots import (
    ScoreSlots as ScoreSlots,
)
from .told_answers import (
    COUNTED as COUNTED,
    MOST_CLASSES as MOST_CLASSES,
    AnswerColumn as AnswerColumn,
    ToldAnswers as ToldAnswers,
    base_rate as base_rate,
    calibration as calibration,
    precision_recall as precision_recall,
    read_answers as read_answers,
    roc as roc,
)
