from .account import ANSWERS_LEFT as ANSWERS_LEFT, Account as Account
from .accountant import (
    Steps as Steps,
    affordable as affordable,
    check_countable as check_countable,
    epsilon_of as epsilon_of,
    noise_for as noise_for,
)
from .budgets import Budgets as Budgets, BudgetSpent as BudgetSpent
from .digests import digest as digest
from .draws import EDITION as EDITION, Draws as Draws
from .folder import VARIABLE as VARIABLE, site_folder as site_folder
from .identity import (
    SITES_FILE as SITES_FILE,
    Identity as Identity,
    Sites as Sites,
    identity_of as identity_of,
    make_identity as make_identity,
    problems_of as problems_of,
    read_sites as read_sites,
    sites_of as sites_of,
)
from .labels import (
    NOTHING as NOTHING,
    Gate as Gate,
    Passage as Passage,
    randomised as randomised,
)
from .ledger import Ledger as Ledger
from .masks import add_masks as add_masks
from .mechanism import LEAST as LEAST, SiloMechanism as SiloMechanism
from .releases import Released as Released, Releases as Releases
from .sealing import Seal as Seal
from .secret import Secret as Secret, own_secret as own_secret
from .security import SecuritySettings as SecuritySettings
from .session import Offer as Offer, Session as Session
from .settings import PrivacySettings as PrivacySettings
from .site import (
    Entry as Entry,
    Site as Site,
    open_site as open_site,
    site_of_worker as site_of_worker,
)
from .site_checkup import Problem as Problem, checkup as checkup, mark_of as mark_of
