from .accountant import (
    Steps as Steps,
    affordable as affordable,
    check_countable as check_countable,
    epsilon_of as epsilon_of,
    noise_for as noise_for,
)
from .budgets import Budgets as Budgets
from .draws import Draws as Draws
from .sealing import Seal as Seal
from .settings import PrivacySettings as PrivacySettings
from .site import (
    Entry as Entry,
    Site as Site,
    open_site as open_site,
    site_of_worker as site_of_worker,
)
