from .late_answers import (
    LateAnswer as LateAnswer,
    LateAnswers as LateAnswers,
)
from .late_sums import (
    LateSum as LateSum,
    LateSums as LateSums,
)
