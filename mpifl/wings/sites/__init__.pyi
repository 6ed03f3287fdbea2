from . import (
    consents as consents,
    https as https,
    letters as letters,
)
from .coordinating import (
    over_sites as over_sites,
)
from .inviting import (
    invite as invite,
)
from .site_joining import (
    join as join,
    joining as joining,
)
from .site_letters import (
    SiteLetters as SiteLetters,
)
from .told_job import (
    names_of_silos as names_of_silos,
)
from .what_fits import (
    wing as wing,
)
from .withdrawing import (
    withdraw as withdraw,
)
