from .compare import (
    Output as Output,
    compare_runs as compare_runs,
    show_run as show_run,
    wide_console as wide_console,
)
from .compare_page import write_best as write_best
from .data import read_shards as read_shards
from .evaluate import (
    as_record as as_record,
    evaluate_run as evaluate_run,
    evaluate_silos as evaluate_silos,
    tell_score as tell_score,
    write_figures as write_figures,
)
from .following import State as State
from .live_page import keep_report as keep_report
from .page import write_report as write_report
from .predict import (
    answered as answered,
    check_asked as check_asked,
    check_names as check_names,
    predict_run as predict_run,
    table_of as table_of,
)
from .runs import Summary as Summary, changed_by_force as changed_by_force, read_run as read_run
from .trained import check_plugins as check_plugins, last_model as last_model, read_job_of as read_job_of
from .watch import watch_run as watch_run
