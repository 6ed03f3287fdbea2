"""A name that there is not is answered with the one that was meant, wherever names are given."""

import pytest

from data_prep.schemes import find_scheme
from data_prep.sources import find_source
from data_prep.tables.spec import read_spec
from mpifl.cli.align.terms import read_terms
from mpifl.cli.job_tools.keys import show_keys
from mpifl.cli.listing import list_names
from mpifl.common.errors import InputError
from mpifl.common.suggesting import choices, did_you_mean, suggested
from mpifl.data.batches.augment import load_change
from mpifl.data.features import Features
from mpifl.learning.models.building import build
from mpifl.run.job import check_job
from mpifl.wings.privacy.site_budget import budget_of


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("FedAvg", "fedavg"),
        ("q-fedavg", "qfedavg"),
        ("q_FedAvg", "qfedavg"),
        ("fedprx", "fedprox"),
        ("scaf", "scaffold"),
        ("Fed Nova", "fednova"),
    ],
)
def test_what_was_meant(given, meant):
    known = ["fedsgd", "fedavg", "fedprox", "fednova", "scaffold", "qfedavg", "qfedsgd"]
    assert did_you_mean(given, known) == f"did you mean '{meant}'? "
    assert choices(given, known).startswith(f"did you mean '{meant}'? there are fedsgd, ")
    assert suggested(given, known) == f"; did you mean '{meant}'?"


def test_another_fields_word_leads_to_the_name_here():
    assert did_you_mean("sensitivity", ["specificity", "recall"]) == "did you mean 'recall'? "
    assert did_you_mean("ROC AUC", ["accuracy", "auroc"]) == "did you mean 'auroc'? "


@pytest.mark.parametrize("given", ["", "xyz", "f" * 10_000, None, 3, "fedavg"])
def test_nothing_is_meant_by_what_is_far_or_there(given):
    assert did_you_mean(given, ["fedavg", "scaffold"]) == ""
    assert did_you_mean(given, []) == ""
    assert choices(given, [], "take") == "take none"


JOB = {"name": "toy", "shards": "shards", "rounds": 1, "model": {"name": "logreg"}}
JOBS = {
    "did you mean 'fedavg'? use fedsgd": {"algorithm": {"name": "FedAvg"}},
    "did you mean 'qfedavg'?": {"algorithm": {"name": "q-fedavg"}},
    "unknown; 'fedavg' with [server_optimizer] name = 'adam' is": {"algorithm": {"name": "fedadam"}},
    "unknown; 'fedavg' with [server_optimizer] name = 'yogi' is": {"algorithm": {"name": "Fed-Yogi"}},
    "unknown; 'fedavg' with [server_optimizer] momentum is": {"algorithm": {"name": "FedAvgM"}},
    "'Adam': unknown; 'fedavg' with [server_optimizer] name = 'adam' is": {"algorithm": {"name": "Adam"}},
    "'q-FFL': unknown; did you mean 'qfedavg'?": {"algorithm": {"name": "q-FFL"}},
    "'fedavg' with [aggregation] rule = 'multikrum' is": {"algorithm": {"name": "Multi-Krum"}},
    "'fedavg' with [aggregation] rule = 'median' is": {"algorithm": {"name": "FedMedian"}},
    "'fedavg' with [aggregation] rule = 'trimmed' is": {"algorithm": {"name": "FedTrimmedAvg"}},
    "unknown; did you mean 'adam'? use sgd": {"server_optimizer": {"name": "fedadam"}},
    "unknown; did you mean 'multilabel'?": {"task": {"name": "multi-label"}},
    "unknown; did you mean 'accuracy'?": {"task": {"metrics": ["acuracy"]}},
    "unknown; did you mean 'cross_entropy'?": {"task": {"loss": "crossentropy"}},
    "is not one of its metrics; did you mean 'accuracy'? use accuracy": {"task": {"main": "Accuracy"}},
    "unknown; did you mean 'trimmed'?": {"aggregation": {"rule": "trimmed_mean"}},
    "should be 'sgd', 'adam' or 'adamw'; did you mean 'adam'?": {"local": {"optimizer": "Adam"}},
    "has no key 'batchsize'; did you mean 'batch_size'?": {"local": {"batchsize": 3}},
    "has no key 'learning_rate'; did you mean 'lr'?": {"local": {"learning_rate": 0.1}},
    "has no key 'batch'; did you mean 'batch_size'?": {"local": {"batch": 3}},
    "has no key 'optimiser'; did you mean 'optimizer'?": {"local": {"optimiser": "sgd"}},
    "has no key 'lr'; did you mean 'local.lr'?": {"lr": 0.1},
    "has no key 'learning_rate'; did you mean 'local.lr'?": {"learning_rate": 0.1},
    "has no key 'epochs'; did you mean 'local.epochs'?": {"epochs": 2},
    "has no key 'batch_size'; did you mean 'local.batch_size'?": {"batch_size": 2},
    "has no key 'num_rounds'; did you mean 'rounds'?": {"num_rounds": 2},
    "has no key 'n_rounds'; did you mean 'rounds'?": {"local": {"n_rounds": 2}},
    "did you mean 'uniform'?": {"cohort": {"select": "Uniform"}},
}


@pytest.mark.parametrize("told", JOBS)
def test_in_a_job(told):
    with pytest.raises(InputError) as refused:
        check_job(JOB | JOBS[told], "the job")
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def asked(path):
    """Return what asks for a name that there is not, by what is meant."""
    line = Features(shape=(3,), dtype="float32")
    return {
        "'cnn'": lambda: build("CNN", {}, line, 2, 0),
        "'hidden'": lambda: build("mlp", {"hiden": [3]}, line, 2, 0),
        "'dirichlet'": lambda: find_scheme("dirichelet"),
        "'parquet'": lambda: find_source("parket"),
        "'targets'": lambda: find_source("npz", ["target=values"])(path, 0),
        "'flip-crop'": lambda: load_change("flipcrop", line, None),
        "'algorithms'": lambda: list_names("algorithm"),
        "'local'": lambda: show_keys("locals"),
    }


@pytest.mark.parametrize("meant", asked(None))
def test_elsewhere(tmp_path, meant):
    with pytest.raises(InputError, match=rf"did you mean {meant}\?"):
        asked(tmp_path)[meant]()


FILES = {
    "'delimiter'": (read_spec, 'delimitter = ";"\n[features]\na = "numeric"\n'),
    "'parties'": (read_terms, 'name = "a"\npartys = ["a", "b"]\n'),
    "'epsilon'": (budget_of, "epsilom = 1.0\n"),
}


@pytest.mark.parametrize("meant", FILES)
def test_in_files_of_a_site(tmp_path, meant):
    read, text = FILES[meant]
    (tmp_path / "it.toml").write_text(text)
    with pytest.raises(InputError, match=rf"did you mean {meant}\?"):
        read(tmp_path / "it.toml")
