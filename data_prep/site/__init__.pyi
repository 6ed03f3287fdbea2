from .agreement import (
    assemble as assemble,
    new_spec as new_spec,
    other_numbers as other_numbers,
    spec_of_table as spec_of_table,
)
from .party import PartyTable as PartyTable
from .several import Holding as Holding, join_sites as join_sites, sites_of as sites_of
from .site import Site as Site, import_site as import_site
from .unlike_sites import differences as differences
