"""Small things that several unit tests build."""

import contextlib
import resource
from pathlib import Path

import numpy as np
import torch
from torch import nn

from mpifl.algorithms.fedavg import FedAvg
from mpifl.algorithms.server import Server
from mpifl.data.batches.batches import Batches
from mpifl.data.shards.column_shards import VerticalSplit, write_vertical
from mpifl.data.shards.federation_spec import version_of
from mpifl.data.shards.shards import Features, FederationSpec, Shard, Split, open_shard
from mpifl.data.shards.vertical_spec import VerticalSpec
from mpifl.exchange.federation import Federation
from mpifl.exchange.server_side.admission import ABOUT, Knowledge
from mpifl.exchange.worker_side.worker import Worker
from mpifl.exchange.worker_side.worker_context import WorkerContext
from mpifl.learning.tasks import CLASSIFICATION
from mpifl.run.job.tables.cohort_table import CohortTable
from mpifl.silo.parameters.flat_model import FlatModel
from mpifl.silo.silo import Silo
from mpifl.silo.splits import learnable
from mpifl.silo.steps.training import Loss, Training
from mpifl.wings.fast import quickly
from mpifl.wire.memory import Memory
from mpifl.wire.nodes import Nodes
from mpifl.wire.transport import Transport
from scripts.write_shard import write_shard

torch.set_num_threads(1)

CPU = torch.device("cpu")
FEATURES = Features(shape=(4,), dtype="float32")
CLASSES = 3
ALIGNMENT = "00112233445566778899aabbccddeeff"
EXAMPLES = CohortTable()
cross_entropy = CLASSIFICATION.objective


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def arrays(n, seed=0, features=FEATURES, classes=CLASSES):
    """Return n drawn examples as (x, y)."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, *features.shape)) if "float" in features.dtype else draw.integers(0, 100, (n, 4))
    return x.astype(features.dtype), draw.integers(0, classes, n)


def batches(n, seed=0, features=FEATURES, **more):
    return Batches(Split(*arrays(n, seed, features, **more)), features, CPU)


def training(
    model, data, start, settings, order=None, objective=cross_entropy, correct=None, *, forms=None, **more
):
    """Return a training that minimises an objective, by default in no other form than the mean."""
    loss = Loss(objective, **(forms or {}))
    return Training(model, data, start, settings, loss, order or stream(), correct, **more)


def net(*more, seed=0, hidden=5):
    """Return a small classifier of FEATURES with weights drawn from the seed;
    `more` stands between its layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, hidden), *more, nn.Tanh(), nn.Linear(hidden, CLASSES))


def batch_norm_net(seed=0):
    return net(nn.BatchNorm1d(5), seed=seed)


class Keeper(nn.Module):
    """Adds numbers that it makes in its first pass and keeps, as models keep tables of positions."""

    table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.arange(x.shape[-1], dtype=x.dtype) / 10
        return x + self.table


def make_silo(model, n=12, seed=0, splits=(), randomness=0, weights="examples", kind=Silo, **more):
    """Return a silo with n training examples drawn from `seed`; `splits` maps further splits to sizes."""
    sizes = {"train": n, **dict(splits)}
    shard = Shard(
        None, {name: Split(*arrays(size, seed + i)) for i, (name, size) in enumerate(sizes.items())}
    )
    given = {
        "id": 0,
        "shard": shard,
        "features": FEATURES,
        "models": [model],
        "state": {},
        "seed": randomness,
    }
    weight = float(n) if weights == "examples" else 1.0
    return kind(**{**given, "weight": weight, "trains": quickly, **more})


def write_folder(folder, sizes, features=FEATURES, classes=CLASSES, test=0, silos_test=0, public=0, **splits):
    """Write a shard folder with a silo of each size;
    `splits` gives every silo further splits of that many examples."""
    folder.mkdir(parents=True, exist_ok=True)
    splits |= {"test": silos_test} if silos_test else {}

    def entry(silo, file, **counts):
        drawn = {
            split: arrays(n, 10 * i + (silo or 0), features, classes)
            for i, (split, n) in enumerate(counts.items())
        }
        return write_shard(folder / file, drawn, silo=silo, name=file, features=features, classes=classes)

    spec = FederationSpec(
        name="toy",
        features=features,
        classes=classes,
        seed=0,
        scheme={"name": "toy"},
        source={},
        silos=[entry(k, f"silo_{k:04d}.h5", train=n, **splits) for k, n in enumerate(sizes)],
        test=entry(None, "test.h5", test=test) if test else None,
        public=entry(None, "public.h5", public=public) if public else None,
    )
    spec.write(folder)
    return spec


def write_vertical_folder(folder, rows, widths=(2, 1, 3), y=None, holder=0, **told):
    """Write a vertical shard folder with a silo of each width, targets at `holder`; `rows` is by split.

    `y` are targets by split, of which `told` says classes and targets; else class numbers are drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = {"classes": None if y else CLASSES, **told}
    whole = Features(shape=(sum(widths),), dtype="float32")
    drawn = {split: arrays(n, i, whole) for i, (split, n) in enumerate(rows.items())}
    ids, start, silos = np.random.default_rng(9).permutation(sum(rows.values())), 0, []
    ids = dict(zip(rows, np.split(ids, np.cumsum([*rows.values()])[:-1]), strict=True))
    for silo, width in enumerate(widths):
        splits = {}
        for split, (x, labels) in drawn.items():
            aim = None if silo != holder else y[split] if y else labels
            splits[split] = VerticalSplit(x[:, start : start + width], ids[split], aim)
        about = {"silo": silo, "name": f"party {silo}", "alignment": ALIGNMENT}
        about |= {"features": Features(shape=(width,), dtype="float32"), **told}
        columns, start = list(range(start, start + width)), start + width
        silos.append(write_vertical(folder / f"silo_{silo:04d}.h5", splits, columns, **about))
    version = version_of(whole, told.get("targets"))
    more = {"name": "toy", "features": whole, "seed": 0, "scheme": {"name": "toy"}, "source": {}}
    spec = VerticalSpec(**more, **told, format_version=version, silos=silos)
    spec.write(folder)
    return spec


class Alone(Transport):
    """A world of one rank that needs no MPI and remembers what it was told."""

    def __init__(self, rank=0):
        self.rank, self.size, self.sent, self.received = rank, 1, 0, 0
        self.nodes, self.memory = Nodes([0], 0), Memory(shared=False)
        self.origins, self._founders, self.silent = [0], [0], set()
        self.told, self._posted = [], []

    def broadcast_record(self, record=None):
        self.told.append(record)
        return super().broadcast_record(record)

    def reports(self, is_stale=None):
        return iter(())


def make_worker(
    folder,
    spec,
    algorithm,
    model=None,
    transforms=(),
    silos=None,
    seed=0,
    cohort=EXAMPLES,
    rank=0,
    kind=Worker,
    **more,
):
    models = [model or FlatModel(net(), recalls=algorithm.recalls)]
    opened = lambda silo: learnable(open_shard(folder, spec.silos[silo], spec), algorithm.task)  # noqa: E731
    where, weights = (opened, folder / "run"), cohort.weights
    context = WorkerContext(
        *where, spec, algorithm, list(transforms), seed, weights, models, select=cohort.drawn_by, **more
    )
    hosted = range(len(spec.silos)) if silos is None else silos
    return kind(context, hosted, dict.fromkeys(ABOUT, "here"), Alone(rank), quickly)


def make_federation(
    folder, spec, algorithm=None, model=None, transforms=(), quorum=1.0, seed=0, cohort=EXAMPLES
):
    """Return a server and a federation in a world of one rank."""
    algorithm = algorithm or FedAvg()
    model = model or FlatModel(net(), recalls=algorithm.recalls)
    worker = make_worker(folder, spec, algorithm, model, transforms, seed=seed, cohort=cohort)
    server = Server([model], seed)
    algorithm.begin(server)
    if len(model.statistics):
        server.state["statistics"] = model.statistics.read()
    examples, placed = [entry.examples for entry in spec.silos], {0: range(len(spec.silos))}
    total = cohort.total([one["train"] for one in examples])
    knowledge = Knowledge(algorithm, examples, cohort.weights, total)
    return server, Federation(Alone(), worker, list(transforms), placed, quorum, CPU, knowledge)


@contextlib.contextmanager
def room_for(nbytes):
    """Have the system take so many bytes of any file and refuse the rest, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def same_bits(one, other):
    """Whether two tensors are equal to the bit, -0.0 and NaN included."""
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.numpy().tobytes() == other.numpy().tobytes()
    )


def mapping_of(tensor):
    """Return the line of /proc/self/maps that a tensor lies in, as words: addresses, rights, the file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(word, 16) for word in line.split()[0].split("-"))
        if start <= tensor.data_ptr() < end:
            return line.split()
    raise AssertionError("no mapping")
