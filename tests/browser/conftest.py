"""Pages of all kinds, and a browser; skipped where scripts/pages.sh does not run them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
from browser.chrome import Chrome, chromium
from browser.firefox import Firefox, firefox
from conftest import ROOT
from unit.builders import write_folder, write_vertical_folder

from data_prep.inspect.column_page import column_page
from data_prep.inspect.columns_summary import ColumnsSummary
from data_prep.inspect.page import page as inspect_page
from data_prep.inspect.summary import summarise
from mpifl.common import Names
from mpifl.data.shards import read_federation
from mpifl.report.pages.live_page import _page as page_of_look
from mpifl.report.pages.run_page import write_report
from mpifl.report.pages.stats_page import page_of_stats
from mpifl.report.runs.compared_files import Output
from mpifl.report.runs.compared_runs import compare_runs
from mpifl.report.terminal.following import Follower
from mpifl.report.terminal.stats_table import heads_of, rows_of, said_of
from mpifl.run.folder.environment import note_lost, write_environment
from mpifl.run.folder.metrics_file import encode_record
from mpifl.run.folder.run_folder import claim_run, describe
from mpifl.run.job.job import check_job

HOSPITALS = [
    "cleveland",
    "hungarian",
    "switzerland",
    "long-beach",
    "a hospital with quite a long name",
    *"fgh",
]


def record(round: int, **more: object) -> dict[str, object]:
    """A round of a training that goes well."""
    accuracy = 0.95 - 0.6 / round
    called = Names(more.pop("names", HOSPITALS))
    names = [called[n] for n in range(len(called.told))]
    apart = 0.14 / max(len(names) - 1, 1)
    silos = {name: {"loss": 0.1 * n, "accuracy": accuracy - apart * n} for n, name in enumerate(names)}
    worst = silos[names[-1]]["accuracy"]
    ranks = {str(rank): {"training": 1 + 0.1 * rank, "waiting": 0.8 - 0.1 * rank} for rank in range(1, 9)}
    return {
        "round": round, "time": 1.7e9 + 2 * round, "train_loss": 2 / round, "test_loss": 2.2 / round,
        "test_accuracy": accuracy, "seconds": 2.0 + round % 3, "seconds_training": 1.8 + round % 3,
        "seconds_waiting": 0.3,
        "seconds_communication": 0.1, "seconds_evaluation": 0.2, "bytes_sent": 1e6, "bytes_received": 1e6,
        "silo_accuracy_mean": fmean(one["accuracy"] for one in silos.values()), "silo_accuracy_worst": worst,
        "silos": silos,
        "silo_accuracy_best": accuracy, "silo_accuracy_worst10": accuracy - 0.18, "rank_seconds": ranks,
        "silo_accuracy_pooled": accuracy - 0.04, **{"faults": {}, **more},
    }  # fmt: skip


def run(
    folder: Path,
    rounds: int = 40,
    planned: int = 40,
    seed: int = 1,
    weights: bool = False,
    names: Sequence[str] = HOSPITALS,
    **more: object,
) -> Path:
    """Leave a run folder."""
    table = {"name": "heart", "shards": str(folder.parent / "shards"), "rounds": planned, "seed": seed,
             "model": {"name": "logreg"}, "evaluate": {"target_accuracy": 0.9}, **more}  # fmt: skip
    table |= {"aggregation": {"rule": "rfa"}} if weights else {}  # which is what gives weights
    claim_run(folder, check_job(table, "toy.toml"))
    records = []
    for n in range(1, rounds + 1):
        faults = {"2": "too late"} if n % 9 == 0 else {}
        of = {str(silo): 1.0 + silo for silo in range(8) if str(silo) not in faults}
        records.append(record(n, names=names, faults=faults, **({"weights": of} if weights else {})))
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    ran = {
        "device": "cuda:0",
        "silos": "1",
        "processor": "AMD EPYC (AVX512)",
        "launcher": "prterun (Open MPI)",
    }
    ran |= {"instructions": "avx avx2 fma avx512f", "caches": "L1 32K, L2 1024K, L3 32768K", "pid": "15525"}
    ranks = {str(rank): {"host": f"node{rank}", **ran} for rank in range(9)}
    shards = folder.parent / "shards"
    if not shards.exists():
        sizes = [*itertools.islice(itertools.cycle([30, 9, 12, 40, 25, 11, 9, 30]), len(names))]
        write_folder(shards, sizes, test=20, silos_test=30)
    told = {"silos": names, "data": describe(read_federation(shards))}
    write_environment(folder, mpi="Open MPI 5.0.11", ranks=ranks, **told)
    if rounds == 40:
        (folder / "model.safetensors").touch()
    return folder


def sweep(folder: Path, *keys: str) -> Path:
    """Write the page of a sweep over these keys, three values each."""
    runs = []
    for nth, values in enumerate(itertools.product((0.01, 0.1, 0.5), repeat=len(keys))):
        local = dict(zip(keys, values, strict=True))
        name = ",".join(f"local.{key}={value}" for key, value in local.items())
        runs.append(run(folder / name, local=local))
        records = [record(n) for n in range(1, 41)]
        for each in records:
            each["test_accuracy"] -= 0.002 * nth
        (runs[-1] / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    write_report(runs[0])
    compare_runs(runs, output=Output(page=folder / "sweep.html"))
    return folder / "sweep.html"


def compared(folder: Path) -> Path:
    """Write the page of three algorithms, three seeds each, beside silos that each train alone."""
    algorithms = [{"name": "scaffold"}, {"name": "fedavg"}, {"name": "fedprox", "mu": 0.1}]
    tried = [(of, seed) for of in algorithms for seed in (1, 2, 3)] + [({"name": "ditto", "lambda": 0.0}, 1)]
    runs = []
    for nth, (algorithm, seed) in enumerate(tried):
        runs.append(run(folder / f"{algorithm['name']}-{seed}", seed=seed, algorithm=algorithm))
        records = [record(n) for n in range(1, 41)]
        for each in records:
            each["test_accuracy"] -= 0.01 * (nth // 3) + 0.004 * (seed * nth % 3)
            for silo, scores in enumerate(each["silos"].values()):
                scores["accuracy"] *= 1 - 0.11 * (silo + nth // 3) * (silo % 3 == nth // 3)
            of_silos = [scores["accuracy"] for scores in each["silos"].values()]
            each |= {"silo_accuracy_mean": fmean(of_silos), "silo_accuracy_worst": min(of_silos)}
        (runs[-1] / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    compare_runs(runs, output=Output(page=folder / "compared.html"))
    return folder / "compared.html"


def federation(folder: Path) -> Path:
    """Write the page of a federation whose labels and sizes are skewed."""
    write_folder(folder, [30, 90, 12, 400], classes=3, test=20)
    (folder.parent / "page.html").write_text(inspect_page(summarise(folder, features=True)))
    return folder.parent / "page.html"


def going_on(folder: Path) -> Path:
    """Write the page of a run that continues, as it is kept fresh."""
    path = run(folder, 11) / "live.html"
    path.write_text(page_of_look(Follower(folder).look(), 300))
    return path


LONG = "universitaetsklinikum_" * 3 + "a"
"""A name that no line of a phone holds, and that has no place to break."""


def long_names(folder: Path) -> Path:
    """Leave a run of which all names are long."""
    names = [f"{name}_{LONG}" for name in HOSPITALS]
    return run(folder, weights=True, names=names, name=f"job_{LONG}")


def long_sweep(folder: Path) -> Path:
    """Write the page of a few such runs."""
    runs = [long_names(folder / f"{nth}{LONG}") for nth in range(3)]
    compare_runs(runs, output=Output(page=folder / "compared.html"))
    return folder / "compared.html"


def columns(folder: Path, *names: str) -> Path:
    """Write the page of silos with columns of the same rows."""
    spec = write_vertical_folder(folder, {"train": 5000, "test": 20}, (1, 9, 3), holder=1)
    told = dict(enumerate(names))
    silos = [one.model_copy(update={"name": told.get(one.silo, one.name)}) for one in spec.silos]
    page = column_page(ColumnsSummary(spec.model_copy(update={"silos": silos})))
    (folder.parent / "columns.html").write_text(page)
    return folder.parent / "columns.html"


PAGES = {
    "run": lambda folder: write_report(run(folder / "run", weights=True)),
    "alone": lambda folder: write_report(run(folder / "run"), None, alone(folder / "alone")),
    "one-round": lambda folder: write_report(run(folder / "run", 1, names=HOSPITALS[:1])),
    "many": lambda folder: write_report(many(folder / "run")),
    "answers": lambda folder: write_report(answering(folder / "run")),
    "lost": lambda folder: write_report(lost(folder / "run")),
    "diverged": lambda folder: write_report(diverged(folder / "run")),
    "masked": lambda folder: write_report(masked(folder / "run")),
    "going-on": lambda folder: going_on(folder / "run"),
    "sweep-of-two": lambda folder: sweep(folder / "sweep", "lr", "momentum"),
    "sweep-of-three": lambda folder: sweep(folder / "sweep", "lr", "momentum", "weight_decay"),
    "settings": lambda folder: compared(folder / "runs"),
    "federation": lambda folder: federation(folder / "shards"),
    "split": lambda folder: write_report(split(folder / "run")),
    "columns": lambda folder: columns(folder / "shards"),
    "regression-of-columns": lambda folder: write_report(regression(folder / "run")),
    "dates-of-columns": lambda folder: table(folder / "dates.html"),
    "long-names": lambda folder: write_report(long_names(folder / LONG)),
    "long-names-compared": long_sweep,
    "long-names-of-columns": lambda folder: columns(folder / "shards", LONG, LONG + "b"),
}


def regression(folder: Path) -> Path:
    """Leave a regression whose silos have fits of their own, but for one."""
    fits = {"algorithm": {"name": "newton", "by_silo": True}, "task": {"name": "binary"}, "evaluate": {}}
    run(folder, **fits)
    apart = {"fixed": -0.0067592, "fixed_error": 0.1, "q": 1.129, "q_p": 0.288, "i2": 0.11}
    of = {"estimate": -0.020547, "error": 0.0027016, "statistic": -7.605, "p": 1.2e-14, "low": -0.025842,
          "high": -0.015252, "odds_ratio": 0.97966, "ratio_low": 0.97449, "ratio_high": 0.98486}  # fmt: skip
    names = ["(intercept)", "age", "creatinine", "smoking=former", "smoking=current", "systolic pressure"]
    rows = [{"name": name, **of, **apart} for name in names]
    rows.insert(3, {"name": "smoking=never", "left_out": True, "reference": True})
    own = {"silos": HOSPITALS[:7], "left_out": ["h"], "reasons": {"h": "column 'age' separates its outcomes"}}
    told = {"log_likelihood": -355.5, "aic": 729.0, "rows": 1072, "decrement": 0.0, "own_fits": own}
    (folder / "metrics.jsonl").write_bytes(encode_record({"round": 40, **told, "coefficients": rows}))
    return folder


def table(path: Path) -> Path:
    """Write the page of a table of dates and numbers at three silos."""
    silos = [{"mean": 472.0 + n, "deviation": 273.66} for n in range(3)]
    told = {"kind": "numbers", "withheld": False, "mean": 472.0, "deviation": 273.66, "silos": silos}
    told |= {
        "quartiles": [237.0, 470.5, 709.25],
        "minimum": -1e-5,
        "maximum": 1213.0,
        "smd": 0.2,
        "between": 0.01,
    }
    edges, counts = [100.0 * n for n in (1, 2, 3, 5, 6, 7, 8, 9)], [125, 110, 120, 240, 125, 140, 130, 10, 20]
    told["histogram"] = {"edges": edges, "counts": counts}
    both = [{"name": "admitted", "since": "2020-01-01", **told}, {"name": "creatinine", **told}]
    whole = {"rows": 1120, "groups": 886, "left_out": 48, "least": 5, "variables": both}
    whole |= {"silos": ["nord", "sued", "ost"], "silo_rows": [300, 700, 120]}
    path.write_text(page_of_stats(whole, heads_of(whole), [*rows_of(whole)], said_of(whole)))
    return path


def alone(folder: Path) -> Path:
    """Leave a run in which each silo trained by itself: some do better so, and some worse."""
    run(folder, algorithm={"name": "ditto", "lambda": 0.0})
    last = record(40, names=[HOSPITALS[n] for n in (7, 1, 5, 3, 4, 2, 6, 0)])
    last["silos"]["g"]["accuracy"] = 0.1
    (folder / "metrics.jsonl").write_bytes(encode_record(last))
    return folder


def many(folder: Path) -> Path:
    """Leave a run of many silos and rounds, one of which is a fall."""
    names = [f"hospital-{n}" for n in range(200)]
    run(folder, planned=5000, names=names)
    records = [record(5 if n == 1777 else n, names=names) | {"round": n} for n in range(1, 5001)]
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    return folder


def answering(folder: Path) -> Path:
    """Leave a run that tells its model's answers, and that was changed by force and has not finished."""
    run(folder, 30, task={"name": "binary", "metrics": ["accuracy", "auroc", "f1"]})
    more = {"test_f1": 0.8, "silo_f1_mean": 0.7}
    aurocs = [{"test_auroc": 0.95 - 0.4 / n, "silo_auroc_mean": 0.9 - 0.4 / n} for n in range(1, 31)]
    records = [record(n, **of, **more) for n, of in enumerate(aurocs, 1)]
    told = [[round(0.05 + p / 20, 3), p * p // 3, (20 - p) ** 2 // 3] for p in range(19)]
    yes, no = ([sum(one[nth] for one in part) for part in (told[:9], told[9:])] for nth in (1, 2))
    of = {"intervals": {"auroc": [0.91, 0.96]}, "commonest": 0.52, "columns": [told], "confusion": [no, yes]}
    records[-1] |= {"answers": {"test": of, "silos": of}}
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    write_environment(folder, changes=["local.lr 0.1 -> 0.01"])
    return folder


def lost(folder: Path) -> Path:
    """Leave a run that diverged in its first round."""
    run(folder)
    (folder / "metrics.jsonl").write_bytes(b"")
    note_lost(
        folder,
        "the model's parameters are not finite after round 1, and are not written; there is no checkpoint",
    )
    return folder


def split(folder: Path) -> Path:
    """Leave a run of silos that each have columns of the same rows."""
    shards = folder.parent / "columns"
    spec = write_vertical_folder(shards, {"train": 5000, "test": 20}, (1, 9, 3), holder=1)
    cut = {
        "split": {"cut_width": 4},
        "algorithm": {"name": "splitnn"},
        "model": {"name": "mlp", "hidden": [8]},
    }
    run(folder, shards=str(shards), **cut)
    told = [{k: v for k, v in record(n).items() if "silo" not in k} for n in range(1, 41)]
    records = [one | {"norm_leak_auc": 0.8} for one in told]
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    write_environment(folder, silos=[one.name for one in spec.silos], data=describe(spec))
    return folder


def diverged(folder: Path) -> Path:
    """Leave a run whose loss is no number in the end."""
    names = ["<b>", "&amp;", "\u202ea"]
    run(folder, names=names)
    records = [record(n, names=names) for n in range(1, 31)]
    of_silos = {"silo_accuracy_worst": 0.1, "silo_accuracy_mean": 0.1, "silo_accuracy_best": 0.1}
    records[-1] |= {"train_loss": float("nan"), "test_loss": float("inf"), "test_accuracy": 0.1} | of_silos
    records[-1]["silos"] = {name: {"loss": None, "accuracy": 0.1} for name in records[-1]["silos"]}
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, records)))
    return folder


def masked(folder: Path) -> Path:
    """Leave a run whose sums were masked."""
    run(folder)
    silent = [record(n, silos={}, rank_seconds={"1": {"training": 1.0}}) for n in range(1, 41)]
    for each in silent:  # nobody knows a silo's figure, nor which is the worst
        for key in [key for key in each if key.startswith("silo_")]:
            del each[key]
    (folder / "metrics.jsonl").write_bytes(b"".join(map(encode_record, silent)))
    with (folder / "job.toml").open("a") as job:
        job.write("[security]\nmasks = true\nleast = 3\n")
    return folder


@pytest.fixture(scope="session")
def pictures() -> Path:
    """The folder where a picture of each page is left."""
    folder = Path(os.environ.get("MPIFL_PICTURES", ROOT / "build" / "pages"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


BROWSERS = {"chromium": (chromium, Chrome), "firefox": (firefox, Firefox)}


@pytest.fixture(scope="session", params=BROWSERS)
def browser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    if not os.environ.get("MPIFL_BROWSER_TESTS"):
        pytest.skip("scripts/pages.sh runs it")
    program, kind = BROWSERS[request.param]
    if program() is None:
        pytest.skip(f"there is no {request.param.capitalize()}")
    found = kind(tmp_path_factory.mktemp(request.param))
    yield found
    found.close()
