from . import (
    fixed_sum as fixed_sum,
    masked_party as masked_party,
    masked_training as masked_training,
    release_phases as release_phases,
)
from .fixed_plan import (
    Question as Question,
    SumPlan as SumPlan,
)
from .fixed_sum import (
    FixedSum as FixedSum,
)
from .masked_party import (
    MaskedParty as MaskedParty,
    MaskedTerms as MaskedTerms,
)
from .masked_training import (
    SITE_NEEDED as SITE_NEEDED,
)
from .masked_wing import (
    wing as wing,
)
from .pair_masks import (
    add_masks as add_masks,
)
from .party_sums import (
    SENTINELS as SENTINELS,
    FixedSums as FixedSums,
)
from .releases import (
    Released as Released,
    Releases as Releases,
)
from .session import (
    Offer as Offer,
    Session as Session,
)
from .who_sees import (
    user_name as user_name,
)
