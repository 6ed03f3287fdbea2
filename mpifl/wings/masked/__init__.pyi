from . import (
    fixed_sum as fixed_sum,
    masked_party as masked_party,
    masked_training as masked_training,
    release_phases as release_phases,
)
from .fixed_plan import (
    PartyPlan as PartyPlan,
    Question as Question,
    SumPlan as SumPlan,
    message_of as message_of,
)
from .fixed_sum import (
    FixedSum as FixedSum,
    width_of as width_of,
)
from .masked_party import (
    MOST_NOISE as MOST_NOISE,
    MaskedParty as MaskedParty,
    MaskedTerms as MaskedTerms,
    share_enough as share_enough,
)
from .masked_training import (
    SITE_NEEDED as SITE_NEEDED,
    check_holding as check_holding,
    check_least as check_least,
    drawn_of as drawn_of,
    holding_of as holding_of,
    of_server as of_server,
    party_of as party_of,
    plain_sums as plain_sums,
)
from .masked_wing import (
    WholeNumbers as WholeNumbers,
    wing as wing,
)
from .pair_masks import (
    add_masks as add_masks,
)
from .party_sums import (
    PER_SCALAR as PER_SCALAR,
    SENTINELS as SENTINELS,
    FixedSums as FixedSums,
    PartySums as PartySums,
)
from .released_file import (
    ReleasedFile as ReleasedFile,
)
from .releases import (
    Released as Released,
    Releases as Releases,
)
from .session import (
    Offer as Offer,
    Session as Session,
    check_signed as check_signed,
)
from .who_sees import (
    user_name as user_name,
)
