from .account import ANSWERS_LEFT as ANSWERS_LEFT, Account as Account
from .accountant import (
    Steps as Steps,
    affordable as affordable,
    check_countable as check_countable,
    epsilon_of as epsilon_of,
    noise_for as noise_for,
)
from .budgets import Budgets as Budgets
from .digests import digest as digest
from .draws import Draws as Draws
from .mechanism import LEAST as LEAST, SiloMechanism as SiloMechanism
from .settings import OF_SILOS as OF_SILOS, PrivacySettings as PrivacySettings
from .site import (
    Entry as Entry,
    Site as Site,
    open_site as open_site,
    site_of_worker as site_of_worker,
)
