from .checking import check as check, faults as faults, show_findings as show_findings
from .vertical_check import check_columns as check_columns
