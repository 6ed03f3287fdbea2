from .compare import (
    Output as Output,
    compare_runs as compare_runs,
    show_run as show_run,
    wide_console as wide_console,
)
from .evaluate import evaluate_run as evaluate_run, evaluate_silos as evaluate_silos
from .page import write_report as write_report
from .predict import predict_run as predict_run
from .runs import Summary as Summary, changed_by_force as changed_by_force, read_run as read_run
