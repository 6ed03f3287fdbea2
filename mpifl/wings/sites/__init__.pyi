from .asking_worker import (
    CameBack as CameBack,
    Questions as Questions,
)
from .coordinator_wing import (
    Coordinating as Coordinating,
    Coordinator as Coordinator,
)
from .site_member import (
    SiteMember as SiteMember,
)
from .site_ranks import (
    SiteAnswer as SiteAnswer,
    SiteRanks as SiteRanks,
)
