from . import (
    consents as consents,
    letters as letters,
)
from .coordinator_wing import (
    Coordinator as Coordinator,
)
from .correspondence import (
    Correspondence as Correspondence,
)
from .joining import (
    join as join,
)
from .site_member import (
    SiteMember as SiteMember,
)
from .site_run import (
    Invited as Invited,
)
