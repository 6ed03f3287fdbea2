"""What runs of exact sums came to, in sentences, on their pages."""

import pytest
from unit.report.test_report_page import FIT, make_run, read


def row(name, estimate, error, **more):
    ends = {"low": estimate - 2 * error, "high": estimate + 2 * error}
    return {"name": name, "estimate": estimate, "error": error, "statistic": estimate / error, "p": 0.01} | {
        **ends,
        **more,
    }


SPREAD = {"fixed": 0.2, "fixed_error": 0.1, "q": 1.5, "q_p": 0.22, "i2": 1 / 3}
ROWS = [
    row("(intercept)", -3.0, 0.1),
    row("sex=m", 0.5, 0.1, against="sex=f"),
    row("age", -0.02, 0.001, **SPREAD),
    row("crp", 0.1, 0.1),
    {"name": "sex=f", "left_out": True, "reference": True},
]
OWN = {"silos": ["a", "b"], "left_out": ["c"], "reasons": {"c": "column 'sex=m' separates its outcomes"}}


def words_of(run):
    return " ".join(read(run)[1].titles())


@pytest.mark.parametrize(
    ("ratio", "model", "effect"),
    [
        ("", "Linear regression", "age for each unit, estimate -0.02 (95% interval -0.022 to -0.018)"),
        ("odds_ratio", "Logistic regression", "age for each unit, odds ratio 0.5 (95% interval 0.4 to 0.6)"),
        ("rate_ratio", "Poisson regression", "age for each unit, rate ratio 0.5 (95% interval 0.4 to 0.6)"),
        ("hazard_ratio", "Cox's model", "age for each unit, hazard ratio 0.5 (95% interval 0.4 to 0.6)"),
    ],
)
def test_the_page_of_a_regression_begins_with_its_coefficients_and_speaks_of_no_score(
    tmp_path, ratio, model, effect
):
    of_ratio = {ratio: 0.5, "ratio_low": 0.4, "ratio_high": 0.6} if ratio else {}
    rows = [{**one, **of_ratio} if "estimate" in one else one for one in ROWS]
    events = {"events": 31} if ratio == "hazard_ratio" else {}
    fit = FIT | events | {"rows": 1072, "coefficients": rows, "own_fits": OWN}
    job = {"algorithm": {"name": "newton"}, "task": {"name": "binary"}}
    run = make_run(tmp_path / "run", [{"round": 1, **fit}], **job)
    words = words_of(run)
    of = "1,072 rows with 31 events" if events else "1,072 rows"
    assert f"{model}: 3 coefficients of {of}. The fit has converged." in words
    assert "2 of 3 have 95% intervals without 0: age, sex=m. Nothing is corrected" in words
    assert f"Largest effects, by estimate over error: {effect}; sex=m against sex=f, " in words
    assert "No round was scored" not in words
    assert "There are no scores" not in words
    assert "without a finite fit: c (column 'sex=m' separates its outcomes)" in words
    assert "column fixed effect Q p of Q I² age 0.2 1.500 0.2200 33%" in words, "a table of its own"
    growing = fit | {"decrement": 0.5}
    words = words_of(make_run(tmp_path / "growing", [{"round": 1, **growing}], **job))
    assert "The fit has not converged, so do not report it: these coefficients have not settled" in words
    assert "Largest effects" not in words
    asks = make_run(tmp_path / "asks", [{"round": 1, **fit}], evaluate={"target": 0.9}, **job)
    assert "No round was scored." in words_of(asks), "a score is asked for"


def group(name, median, **more):
    ends = {"median_from": median, "median_low": 3.0, "median_high": None}
    curve = [{"from": 0.0, "time": 9.0, "survival": 0.4, "low": 0.3, "high": 0.5}]
    return {"name": name, "withheld": False, "rows": 30, "events": 9, "median": median, "curve": curve} | {
        **ends,
        **more,
    }


def test_the_page_of_survival_curves_begins_with_medians_and_the_log_rank_test(tmp_path):
    groups = [group("old", 7.5), group("young", None), {"name": "none", "withheld": True}]
    told = {"groups": groups, "least": 5, "step": 0.5}
    test = {"log_rank": {"statistic": 8.0, "degrees": 1, "p": 0.0047}}
    job = {"algorithm": {"name": "kaplanmeier"}, "task": {"name": "survival"}}
    words = words_of(make_run(tmp_path / "run", [{"round": 1, "survival": told | test}], **job))
    first = "Survival of 60 rows in 2 groups, with 18 events. 1 group with few events is withheld."
    medians = "Median time: old 7.5 (95% interval 3 to not reached); young is not reached."
    parts = "The curves differ by more than chance: p = 0.005 by the log-rank test."
    assert f"{first} {medians} {parts}" in words
    alike = told | {"log_rank": test["log_rank"] | {"p": 0.4}}
    words = words_of(make_run(tmp_path / "alike", [{"round": 1, "survival": alike}], **job))
    assert "The curves show no difference: p = 0.400 by the log-rank test." in words
