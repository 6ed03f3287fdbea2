from .answer_vectors import (
    parted as parted,
    vector_headers as vector_headers,
    vectors_of as vectors_of,
)
from .kept_answers import (
    ANSWERS as ANSWERS,
    KeptAnswers as KeptAnswers,
    SiteAnswer as SiteAnswer,
)
from .site_question import (
    CameBack as CameBack,
    SiteQuestion as SiteQuestion,
)
from .site_ranks import (
    SiteRanks as SiteRanks,
    expected_of as expected_of,
)
from .site_share import (
    SiteShares as SiteShares,
)
