from .kept_answers import (
    ANSWERS as ANSWERS,
    KeptAnswers as KeptAnswers,
    SiteAnswer as SiteAnswer,
)
from .site_ranks import (
    SiteRanks as SiteRanks,
    expected_of as expected_of,
)
from .site_share import (
    SiteShares as SiteShares,
)
