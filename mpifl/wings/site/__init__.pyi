from . import (
    sealing as sealing,
)
from .ciphers import (
    BLOCK as BLOCK,
    Exchange as Exchange,
    derived as derived,
    in_pieces as in_pieces,
    keystream as keystream,
)
from .digests import (
    digest as digest,
)
from .sealing import (
    SiteSeal as SiteSeal,
    sealed_size as sealed_size,
)
from .site_directory import (
    VARIABLE as VARIABLE,
    fsync_folder as fsync_folder,
    make_once as make_once,
    make_own as make_own,
    site_folder as site_folder,
)
from .site_identity import (
    KEY_FILE as KEY_FILE,
    SITES_FILE as SITES_FILE,
    Identity as Identity,
    ListedSite as ListedSite,
    PublicKey as PublicKey,
    SiloName as SiloName,
    Sites as Sites,
    has_signed as has_signed,
    identity_of as identity_of,
    lists_sites as lists_sites,
    make_identity as make_identity,
    problems_of as problems_of,
    read_sites as read_sites,
    sites_of as sites_of,
)
from .site_ledger import (
    SiteLedger as SiteLedger,
)
from .site_wing import (
    check_own_rules as check_own_rules,
    refuse_unbudgeted as refuse_unbudgeted,
    wing as wing,
)
