"""Each algorithm once more, written from its paper: dicts of float64 tensors and plain loops.

`Task` holds what all share: the silos' examples, the cohorts, the order of examples, a silo's training. Of
mpifl it takes `rng` alone, to draw alike.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter, OrderedDict
from fractions import Fraction

import h5py
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from mpifl.common import rng

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class Characters(nn.Module):
    """The hidden states [n, 5, L] of an LSTM over characters [n, L]."""

    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(4, 3), nn.LSTM(3, 5, batch_first=True)

    def forward(self, x):
        return self.lstm(self.embedding(x))[0].transpose(1, 2)


def network(name, inputs=6, classes=3, width=8):
    if name == "char-lstm":
        return nn.Sequential(OrderedDict(features=Characters(), head=nn.Conv1d(5, 4, 1))).double()
    layers = {
        "logreg": [nn.Flatten()],
        "mlp": [nn.Flatten(), nn.Linear(inputs, width), nn.ReLU()],
        "problems:normalised": [nn.Flatten(), nn.Linear(inputs, width), nn.Tanh(), nn.BatchNorm1d(width)],
    }[name]
    head = nn.Linear(inputs if name == "logreg" else width, classes)
    return nn.Sequential(OrderedDict(features=nn.Sequential(*layers), head=head)).double()


def plus(a, b, by=1.0):
    return {name: a[name] + by * b[name] for name in a}


def minus(a, b):
    return plus(a, b, -1.0)


def average(shares, dicts):
    """Sum shares * dicts; a counter of batches is rounded to a whole number."""
    total = {name: sum(p * d[name].double() for p, d in zip(shares, dicts, strict=True)) for name in dicts[0]}
    return {name: v.round() if name.endswith("num_batches_tracked") else v for name, v in total.items()}


def norm(a):
    return math.sqrt(sum(float(v.square().sum()) for v in a.values()))


def weights(path, net):
    """Read a model's weights, in the order of its layers."""
    found = load_file(path)
    return {name: found[name].double() for name in net.state_dict()}


def in_batches(n, size, order, epochs, steps=None):
    """Return the indices of so many epochs' batches, or of the first so many steps."""
    whole, done = size == "full" or size >= n, []
    while len(done) < steps if steps else epochs > 0:
        done += torch.split(
            torch.arange(n) if whole else torch.randperm(n, generator=order), n if whole else size
        )
        epochs -= 1
    return done[:steps]


class Task:
    """A job and its silos' examples, and what comes of it:
    `figures` a round, what server and silos `keep`."""

    def __init__(self, job, folder, run):
        self.own, self.local, self.draw = job["algorithm"], job["local"], job.get("cohort", {})
        self.server, self.seed, self.rounds = (
            job.get("server_optimizer", {"lr": 1.0}),
            job["seed"],
            job["rounds"],
        )
        self.net = network(job["model"]["name"])
        self.start, self.folder = weights(run / "initial.safetensors", self.net), folder / job["shards"]
        self.spec = json.loads((self.folder / "federation.json").read_text())
        self.silos = [self.read(silo, "train") for silo in self.spec["silos"]]
        self.n = [len(y) for _, y in self.silos]
        self.clock = job.get("clock")
        self.compression, self.clip = job.get("compression", {}), job.get("aggregation", {}).get("clip")
        self.last, self.figures, self.kept, self.personal, self.server_keeps = {}, [], {}, {}, {}

    def read(self, entry, split):
        with h5py.File(self.folder / entry["file"]) as file:
            x, y = torch.tensor(file[split]["x"][...]), torch.tensor(file[split]["y"][...])
        if self.spec["features"]["scale"] is None:
            return x.long(), y
        return x.double() * self.spec["features"]["scale"] + self.spec["features"]["offset"], y

    def cohort(self, t):
        size = max(int(self.draw.get("fraction", 1.0) * len(self.n)), 1)
        chances = [n / sum(self.n) for n in self.n] if self.drawn_by_size() else None
        stream = rng.numpy_stream(self.seed, "cohort", t)
        if self.draw.get("select") == "power-of-choice":  # Cho et al. 2022, section 4, rpow-d
            drawn = stream.choice(len(self.n), self.draw["candidates"], replace=False, p=chances).tolist()
            return sorted(sorted(drawn, key=lambda k: self.last.get(k, math.inf), reverse=True)[:size])
        return sorted(int(k) for k in stream.choice(len(self.n), size, replace=False, p=chances))

    def p(self, cohort):
        """The shares in the averages: n_k / n over the cohort, or all alike."""
        n = [self.n[k] if self.draw.get("weights") != "uniform" else 1 for k in cohort]
        return [m / sum(n) for m in n]

    def drawn_by_size(self):
        return self.draw.get("select") in ("examples", "power-of-choice")

    def objective(self):
        """The shares p_k in sum_k p_k F_k over all silos: n_k / n,
        or alike if they are drawn and counted alike."""
        alike = self.draw.get("weights") == "uniform" and not self.drawn_by_size()
        return [1 / len(self.n) if alike else n / sum(self.n) for n in self.n]

    def lr(self, t):
        return self.local["lr"] * self.local.get("lr_decay", 1.0) ** t

    def batches(self, k, t, nth=0):
        """The indices of the batches of a silo's local training, the first or the nth after it in a round."""
        turn = (k, t, nth) if nth else (k, t)
        epochs, steps = self.local.get("epochs", 1), self.local.get("steps")
        if "epochs_by_silo" in self.local:
            epochs = self.local["epochs_by_silo"][k % len(self.local["epochs_by_silo"])]
        if "epochs_decay" in self.local:
            epochs = math.floor(epochs * self.local["epochs_decay"] ** t + 0.5)
        lot, chance = rng.torch_stream(self.seed, "stragglers", *turn), self.local.get("straggler_chance")
        if chance and float(torch.rand((), generator=lot)) < chance:
            epochs = int(torch.randint(1, epochs + 1, (), generator=lot))
        order, size = rng.torch_stream(self.seed, "train", *turn), self.local["batch_size"]
        if "batch_growth" in self.local:
            size = math.floor(size * self.local["batch_growth"] ** t + 0.5)
        return in_batches(self.n[k], size, order, epochs, steps)

    def model(self, w):
        self.net.load_state_dict(w)
        return self.net.train()

    def cross_entropy(self, net, k, i):
        x, y = self.silos[k]
        return F.cross_entropy(net(x[i]), y[i])

    def gradient(self, w, k, i=slice(None)):
        net = self.model(w)
        self.loss = self.cross_entropy(net, k, i)
        names, parameters = zip(*net.named_parameters(), strict=True)
        return dict(zip(names, torch.autograd.grad(self.loss, parameters), strict=True))

    @torch.no_grad()
    def risk(self, w, k):
        return float(self.cross_entropy(self.model(w).eval(), k, slice(None)))

    def optimizer(self, parameters, t):
        named = {"momentum", "nesterov", "weight_decay"}
        more = {key: value for key, value in self.local.items() if key in named}
        return OPTIMIZERS[self.local.get("optimizer", "sgd")](parameters, lr=self.lr(t), **more)

    def train(self, w, k, t, objective=None, penalty=None, correction=None, names=None, batches=None):
        """Train from w on objective + penalty, `correction` added to each gradient, all parameters or those
        of `names`; return (end, steps, loss)."""
        net = self.model(w)
        optimizer = self.optimizer([v for n, v in net.named_parameters() if names is None or n in names], t)
        losses, batches = [], self.batches(k, t) if batches is None else batches
        for i in batches:
            optimizer.zero_grad()
            loss = (objective or self.cross_entropy)(net, k, i)
            (loss + penalty(net) if penalty else loss).backward()
            for name, parameter in net.named_parameters() if correction else ():
                parameter.grad += correction[name]
            optimizer.step()
            losses += [float(loss.detach())] * len(i)
        return (
            {name: v.clone() for name, v in net.state_dict().items()},
            len(batches),
            sum(losses) / len(losses),
        )

    def report(self, cohort, losses, shares=None, **more):
        loss = sum(p * loss for p, loss in zip(shares or self.p(cohort), losses, strict=True))
        self.figures.append({"train_loss": loss, **more})
        self.last = {**getattr(self, "last", {}), **dict(zip(cohort, losses, strict=True))}
        return loss

    def zeros(self):
        return {name: torch.zeros_like(v) for name, v in self.start.items()}


def scaled(by, a):
    return {name: by * v for name, v in a.items()}


def near(centre, mu):
    """The proximal term (mu/2) ||w - centre||^2."""
    return lambda net: mu / 2 * sum((v - centre[name]).square().sum() for name, v in net.named_parameters())


def fedsgd(o):
    """McMahan et al. 2017, section 2."""
    w = o.start
    for t in range(o.rounds):
        s = o.cohort(t)
        o.report(s, [o.risk(w, k) for k in s])
        w = plus(w, average(o.p(s), [o.gradient(w, k) for k in s]), -o.lr(t))
    return w


def fedavg(o):
    """McMahan et al. 2017, Algorithm 1."""
    w = o.start
    for t in range(o.rounds):
        s = o.cohort(t)
        ends, _, losses = zip(*[o.train(w, k, t) for k in s], strict=True)
        w = average(o.p(s), ends)
        o.report(s, losses)
    return w


def clipped(o):
    """FedAvg with McMahan et al. 2018's flat clipping of each silo's delta."""
    w = o.start
    for t in range(o.rounds):
        s = o.cohort(t)
        ends, _, losses = zip(*[o.train(w, k, t) for k in s], strict=True)
        deltas = [minus(end, w) for end in ends]
        lengths = [norm(delta) for delta in deltas]
        factors = [min(1.0, o.clip / length) for length in lengths]
        shorter = [
            {name: c * v for name, v in delta.items()} for c, delta in zip(factors, deltas, strict=True)
        ]
        w = plus(w, average(o.p(s), shorter))
        o.report(s, losses, clipped=sum(length > o.clip for length in lengths) / len(s))
    return w


def compressed(o):
    """FedAvg with the memory of Stich et al. 2018, Algorithm 1,
    for what the codec leaves out of a silo's delta."""
    w, memory, up = o.start, {}, o.compression["upload"]
    names, sizes = list(w), [v.numel() for v in w.values()]
    for t in range(o.rounds):
        s = o.cohort(t)
        seen, sent, losses = w, [], []
        if o.compression.get("download") == "bfloat16":
            seen = {name: v.float().bfloat16().double() for name, v in w.items()}
        for k in s:
            end, _, loss = o.train(seen, k, t)
            whole = torch.cat([v.reshape(-1) for v in minus(end, seen).values()])
            whole = whole + memory.get(k, torch.zeros_like(whole))
            found = sparse(o, whole) if up == "topk" else quantised(o, whole, k, t)
            if o.compression.get("error_feedback", up == "topk"):
                memory[k] = whole - found
            parts = torch.split(found, sizes)
            sent.append({name: part.view(w[name].shape) for name, part in zip(names, parts, strict=True)})
            losses.append(loss)
        w = plus(w, average(o.p(s), sent))
        o.report(s, losses)
    o.kept = {k: {"unsent delta": {"": left}} for k, left in memory.items()}
    return w


def sparse(o, whole):
    """All but the largest ceil(share * n) elements set to zero, one after another."""
    found = torch.zeros_like(whole)
    for _ in range(math.ceil(o.compression["share"] * len(whole))):
        i = (whole.abs() - 1e9 * (found != 0)).argmax()
        found[i] = whole[i]
    return found


def quantised(o, whole, k, t):
    """Alistarh et al. 2017, section 3.1, element by element."""
    s, bucket = 2 ** (o.compression["bits"] - 1) - 1, o.compression.get("bucket", 512)
    draws = torch.rand(len(whole), generator=rng.torch_stream(o.seed, "compression of delta", k, t)).tolist()
    found = torch.zeros_like(whole)
    for i, (x, u) in enumerate(zip(whole.tolist(), draws, strict=True)):
        part = whole[i - i % bucket : i - i % bucket + bucket]
        norm = float(part.abs().max() if o.compression.get("norm", "max") == "max" else part.norm())
        level = abs(x) / norm * s
        chance = level - math.floor(level)
        above = u < chance if x > 0 else u >= 1 - chance
        found[i] = math.copysign(norm * (math.floor(level) + above) / s, x)
    return found


def fedopt(o):
    """Reddi et al. 2021, Algorithm 2; Hsu et al. 2019 for the rule sgd: FedAvgM."""
    w, m, rule, lr = dict(o.start), o.zeros(), o.server["name"], o.server["lr"]
    tau = o.server.get("tau", 0.0)
    v = {name: torch.full_like(x, tau**2) for name, x in w.items()}
    for t in range(o.rounds):
        s = o.cohort(t)
        ends, _, losses = zip(*[o.train(w, k, t) for k in s], strict=True)
        o.report(s, losses)
        for name, d in average(o.p(s), [minus(end, w) for end in ends]).items():
            if rule == "sgd":
                m[name] = o.server["momentum"] * m[name] + d
                w[name] = w[name] + lr * m[name]
                continue
            m[name] = o.server["beta1"] * m[name] + (1 - o.server["beta1"]) * d
            if rule == "adagrad":
                v[name] = v[name] + d**2
            elif rule == "adam":
                v[name] = o.server["beta2"] * v[name] + (1 - o.server["beta2"]) * d**2
            elif rule == "yogi":
                v[name] = v[name] - (1 - o.server["beta2"]) * d**2 * torch.sign(v[name] - d**2)
            w[name] = w[name] + lr * m[name] / (v[name].sqrt() + tau)
    o.server_keeps = {"velocity": m} if rule == "sgd" else {"m": m, "v": v}
    return w


def fedprox(o):
    """Li et al. 2020, Algorithm 2, Definition 2 and appendix C.3.3: mu falls by 0.1 where the loss goes on
    falling for 5 rounds, and rises by 0.1 where the loss rises. The loss is that of the global model over all
    devices, as the authors' figures and code have it.

    With a target gamma a device goes on, an epoch at a time, until its solution is gamma-inexact.
    """
    w, mu, before, falls = o.start, o.own["mu"], None, 0
    for t in range(o.rounds):
        s, gammas = o.cohort(t), {}
        if o.own.get("adaptive"):
            everyone = range(len(o.n))
            loss = sum(p * o.risk(w, k) for p, k in zip(o.p(everyone), everyone, strict=True))
            gammas["global_loss"] = loss
            if before is not None:
                falls = falls + 1 if loss < before else 0
                if loss > before:
                    mu += o.own["mu_step"]
                elif falls == o.own["patience"]:
                    mu, falls = max(mu - o.own["mu_step"], 0.0), 0
            before = loss

        def inexactness(end, k, w=w, mu=mu):
            return norm(plus(o.gradient(end, k), minus(end, w), mu)) / norm(o.gradient(w, k))

        def solve(k, t=t, w=w, mu=mu, inexactness=inexactness):
            batches, size = o.batches(k, t), o.local["batch_size"]
            every = 1 if size == "full" else math.ceil(o.n[k] / size)
            end, seen, total = w, 0, 0.0
            for first in range(0, len(batches), every):
                some = batches[first : first + every]
                end, _, loss = o.train(end, k, t, penalty=near(w, mu), batches=some)
                examples = sum(map(len, some))
                seen, total = seen + examples, total + loss * examples
                if len(some) == every and inexactness(end, k) <= o.own["gamma"]:
                    break
            return end, first + len(some), total / seen

        if "gamma" in o.own:
            ends, taken, losses = zip(*[solve(k) for k in s], strict=True)
            gammas["steps"] = sum(p * n for p, n in zip(o.p(s), taken, strict=True))
        else:
            ends, _, losses = zip(*[o.train(w, k, t, penalty=near(w, mu)) for k in s], strict=True)
        if o.own.get("measure_gamma") or "gamma" in o.own:
            each = [inexactness(end, k) for k, end in zip(s, ends, strict=True)]
            gammas["gamma"] = sum(p * g for p, g in zip(o.p(s), each, strict=True))
            gammas["gamma_silos"] = {str(k): g for k, g in zip(s, each, strict=True)}
        o.report(s, losses, mu=mu, **gammas)
        w = average(o.p(s), ends)
    return w


def held(rho, steps):
    """Return how often each gradient is in the delta: a_k."""
    return [sum(rho ** (i - j) for i in range(j, steps)) for j in range(steps)]


def fednova(o):
    """Wang et al. 2020, equation 6;
    a_k counts each gradient once for every step that its momentum carries it on."""
    w, rho = o.start, o.local.get("momentum", 0.0)
    for t in range(o.rounds):
        s = o.cohort(t)
        ends, taus, losses = zip(*[o.train(w, k, t) for k in s], strict=True)
        a = [held(rho, tau) for tau in taus]
        tau_eff = sum(p * sum(a_k) for p, a_k in zip(o.p(s), a, strict=True))
        d = average(
            o.p(s), [{n: (w[n] - end[n]) / sum(a_k) for n in w} for end, a_k in zip(ends, a, strict=True)]
        )
        o.report(s, losses, tau_eff=tau_eff)
        w = plus(w, d, -tau_eff)
    return w


def scaffold(o):
    """Karimireddy et al. 2020, Algorithm 1, for the objective sum_k p_k F_k; in the paper p_k = 1/N.

    The paper averages the deltas alike and adds |S|/N times the mean shift to c. Here the deltas have the
    cohort's shares, and p_k times each shift is added: c is the sum of p_k c_k over all N silos. With
    momentum, K is Wang et al.'s (2020) ||a||_1: a gradient counts for every step that carries it on. As
    printed, 1/N of each shift is added, whatever the deltas weigh (line 17; Li et al. 2022 weigh deltas n_k).
    """
    w, c, own, p, rho = o.start, o.zeros(), {}, o.objective(), o.local.get("momentum", 0.0)
    if o.own.get("control_weights") == "uniform":
        p = [1 / len(o.n)] * len(o.n)
    for t in range(o.rounds):
        s, deltas, shifts, losses = o.cohort(t), [], [], []
        for k in s:
            c_k = own.get(k, o.zeros())
            y, steps, loss = o.train(w, k, t, correction=minus(c, c_k))
            new = o.gradient(w, k)
            if o.own["option"] == "II":
                new = plus(minus(c_k, c), minus(w, y), 1 / (o.lr(t) * sum(held(rho, steps))))
            own[k] = new
            deltas, shifts, losses = [*deltas, minus(y, w)], [*shifts, minus(new, c_k)], [*losses, loss]
        o.report(s, losses)
        w = plus(w, average(o.p(s), deltas), o.server["lr"])
        c = plus(c, average([p[k] for k in s], shifts))
    o.server_keeps, o.kept = {"c": c}, {k: {"c": c_k} for k, c_k in own.items()}
    return w


def feddyn(o):
    """Acar et al. 2021, Algorithm 1, for the objective sum_k p_k F_k; in the paper p_k = 1/m.

    A silo minimises F_k(w) - <g_k, w> + (alpha/2) ||w - w^t||^2; g_k is then the gradient of F_k where it
    ended. The paper averages the models alike and takes alpha/m of each delta from h. Here the models have
    the cohort's shares, and alpha p_k of each delta is taken: h is the sum of p_k g_k over all m silos. The
    server moves h first, then w.
    """
    w, h, own, p, alpha = o.start, o.zeros(), {}, o.objective(), o.own["alpha"]
    for t in range(o.rounds):
        s, ends, losses = o.cohort(t), [], []
        for k in s:
            g = own.get(k, o.zeros())
            end, _, loss = o.train(w, k, t, penalty=near(w, alpha), correction=minus(o.zeros(), g))
            own[k] = plus(g, minus(end, w), -alpha)
            ends, losses = [*ends, end], [*losses, loss]
        o.report(s, losses)
        h = plus(h, average([p[k] for k in s], [minus(end, w) for end in ends]), -alpha)
        w = plus(average(o.p(s), ends), h, -1 / alpha)
    o.server_keeps, o.kept = {"h": h}, {k: {"g": g} for k, g in own.items()}
    return w


def scalings(o):
    """Konecny et al. 2016, before Algorithm 4: the diagonals of each S_k and of A, an element a feature.

    An example has feature j where what the model sees of it is not zero. n^j, K and omega^j are counted over
    all silos, in the cohort or not. Where n_k^j = 0 the silo's gradients are zero for feature j: any s_k^j
    does, so it is 1.
    """
    x = [silo.flatten(1) for silo, _ in o.silos]
    s, a = torch.ones(len(x), x[0].shape[1]).double(), torch.ones(x[0].shape[1]).double()
    for j in range(len(a)):
        n_j = [int((x_k[:, j] != 0).sum()) for x_k in x]
        phi, omega = sum(n_j) / sum(o.n), sum(n_kj > 0 for n_kj in n_j)
        a[j] = len(x) / omega if omega else 1.0
        for k, n_kj in enumerate(n_j):
            s[k, j] = phi / (n_kj / o.n[k]) if n_kj else 1.0
    return s, a


def by_feature(scale, g):
    """Scale the columns of a linear model's weights, one a feature; every example has its bias."""
    return {name: v * scale if name.endswith("weight") else v for name, v in g.items()}


def fsvrg(o):
    """Konecny et al. 2016, Algorithm 4: w <- w - h_k (S_k [F_i'(w) - F_i'(w^t)] + F'(w^t)), h_k = h / n_k.

    The paper takes one example a step, all silos and n_k / n; here batches, cohorts and their shares do as
    well.
    """
    w, (s_k, a) = o.start, scalings(o) if o.own.get("scaling") else (torch.ones(len(o.n)), 1.0)
    for t in range(o.rounds):
        s, deltas, losses = o.cohort(t), [], []
        full = average(o.p(s), [o.gradient(w, k) for k in s])
        for k in s:
            y, seen = w, []
            for i in o.batches(k, t):
                anchor, here = o.gradient(w, k, i), o.gradient(y, k, i)
                seen += [float(o.loss.detach())] * len(i)
                y = plus(y, plus(by_feature(s_k[k], minus(here, anchor)), full), -o.lr(t) / o.n[k])
            deltas, losses = [*deltas, minus(y, w)], [*losses, sum(seen) / len(seen)]
        o.report(s, losses)
        w = plus(w, by_feature(a, average(o.p(s), deltas)))
    return w


def qfedavg(o):
    """Li et al. 2020 (q-FFL), Algorithm 2, and Algorithm 1 for qfedsgd."""
    w, q = o.start, o.own["q"]
    for t in range(o.rounds):
        s, over, under, losses, lipschitz = o.cohort(t), [], 0.0, [], 1 / o.lr(t)
        for k in s:
            risk = o.risk(w, k)
            if o.own["name"] == "qfedsgd":
                dw, loss = o.gradient(w, k), risk
            else:
                end, _, loss = o.train(w, k, t)
                dw = {name: lipschitz * (w[name] - end[name]) for name in w}
            over.append({name: risk**q * v for name, v in dw.items()})
            under += q * risk ** (q - 1) * norm(dw) ** 2 + lipschitz * risk**q
            losses.append(loss)
        o.report(s, losses, shares=[1 / len(s)] * len(s))
        w = minus(w, average([1 / under] * len(s), over))
    return w


def fedper(o):
    """Arivazhagan et al. 2019, Algorithms 1 and 2; FedBN (Li et al.
    2021) where the personal layer is BatchNorm."""
    prefixes = {"fedbn": ("features.3.",)}.get(
        o.own["name"], tuple(p.rstrip("*") for p in o.own.get("personal", ()))
    )
    at_home = {name for name in o.start if name.startswith(prefixes)}
    w, own = o.start, {k: {name: o.start[name] for name in at_home} for k in range(len(o.n))}
    for t in range(o.rounds):
        s, ends, losses = o.cohort(t), [], []
        for k in s:
            end, _, loss = o.train({**w, **own[k]}, k, t)
            own[k] = {name: end[name] for name in at_home}
            ends, losses = [*ends, end], [*losses, loss]
        o.report(s, losses)
        w = {name: v if name not in at_home else o.start[name] for name, v in average(o.p(s), ends).items()}
    o.personal = {k: {**w, **v} for k, v in own.items()}
    return w


def finetune(o):
    """FedAvg, and in the end each silo trains on from w (Ogier du Terrail et al. 2022, FLamby)."""
    w, own, t = fedavg(o), o.own, o.rounds
    for k, n in enumerate(o.n):
        order = rng.torch_stream(o.seed, "train", k, t)
        of = n, o.local["batch_size"], order, own.get("tune_epochs", 1), own.get("tune_steps")
        if "tune_lr" in own:
            o.lr = lambda t: own["tune_lr"]
        o.personal[k], _, _ = o.train(w, k, t, batches=in_batches(*of))
    return w


def ditto(o):
    """Li et al. 2021, Algorithm 1; v_k begins at w_0, as in the authors' code (litian96/ditto)."""
    w, v = o.start, {}
    for t in range(o.rounds):
        s, ends, losses = o.cohort(t), [], []
        for k in s:
            v[k], _, _ = o.train(v.get(k, o.start), k, t, penalty=near(w, o.own["lambda"]))
            end, _, loss = o.train(w, k, t)
            ends, losses = [*ends, end], [*losses, loss]
        o.report(s, losses)
        w = average(o.p(s), ends)
    o.kept = {k: {"v": v_k} for k, v_k in v.items()}
    o.personal = v
    return w


def moon(o):
    """Li, He & Song 2021, Algorithm 1 and equation 3."""
    w, previous, mu, temperature = o.start, {}, o.own["mu"], o.own["temperature"]

    def features(w, k):
        with torch.no_grad():
            return o.model(w).eval().features(o.silos[k][0])

    def objective(net, k, i):
        x, y = o.silos[k]
        z = net.features(x[i])
        near, far = (
            torch.exp(F.cosine_similarity(z, frozen[i]) / temperature) for frozen in (z_global, z_previous)
        )
        return F.cross_entropy(net.head(z), y[i]) - mu * torch.log(near / (near + far)).mean()

    for t in range(o.rounds):
        s, ends, losses = o.cohort(t), [], []
        for k in s:
            z_global, z_previous = features(w, k), features(previous.get(k, o.start), k)
            previous[k], _, loss = o.train(w, k, t, objective)
            ends, losses = [*ends, previous[k]], [*losses, loss]
        o.report(s, losses)
        w = average(o.p(s), ends)
    o.kept = {
        k: {"previous": {name: end[name] for name, _ in o.net.named_parameters()}}
        for k, end in previous.items()
    }
    return w


def speeds(o):
    """Steps a second, as the job writes them or as they are drawn, without a rounding error."""
    clock, names = o.clock, [entry["name"] for entry in o.spec["silos"]]
    if isinstance(clock["speeds"], dict):
        return [Fraction(str(clock["speeds"][name])) for name in names]
    low, high = clock.get("slowest", 1.0), clock.get("fastest", 10.0)
    u = rng.numpy_stream(clock.get("seed", o.seed), "speeds").random(len(names))
    even = clock["speeds"] == "uniform"
    return [Fraction(str(float(low + (high - low) * x if even else low * (high / low) ** x))) for x in u]


def asynchronous(o, size, move, mu=0.0):
    """Rounds of `size` arrivals, from a queue by (moment, silo); `move(w, t, arrivals)` is the server's step.

    Who begins trains at once, from the model of then. An arrival is (silo, round begun, start, end, loss).
    """
    seed, speed, all_silos = o.clock.get("seed", o.seed), speeds(o), range(len(o.n))
    w, now, queue, begun, done = o.start, Fraction(0), [], Counter(), 0

    def begin(k, t):
        batches = o.batches(k, t, begun[k, t])
        seconds = len(batches) / speed[k]
        if jitter := o.clock.get("jitter"):
            u = float(rng.numpy_stream(seed, "jitter", k, begun[k]).random())
            seconds *= Fraction(1 + jitter * (2 * u - 1))
        begun.update([k, (k, t)])
        end, _, loss = o.train(w, k, t, penalty=near(w, mu), batches=batches)
        heapq.heappush(queue, (now + seconds, k, t, w, end, loss))

    first, many = rng.numpy_stream(seed, "first silos"), o.own.get("concurrency")
    beginners = sorted(first.choice(len(o.n), many, replace=False).tolist()) if many else all_silos
    for t in range(o.rounds):
        arrivals = []
        while len(arrivals) < size:
            for k in beginners:
                begin(k, t)
            now, k, *update = heapq.heappop(queue)
            arrivals.append((k, *update))
            done += 1
            idle = sorted({*all_silos} - {one[1] for one in queue})
            drawn = len(idle) > 1 and int(rng.numpy_stream(seed, "next silo", done).integers(len(idle)))
            beginners = [idle[drawn]]
        w = move(w, t, arrivals)
        age = sum(t - arrival[1] for arrival in arrivals) / size
        silos, losses = [arrival[0] for arrival in arrivals], [arrival[-1] for arrival in arrivals]
        o.report(silos, losses, staleness=age, virtual_seconds=float(now))
    return w


def fedasync(o):
    """Xie, Koyejo & Gupta 2019, Algorithm 1, where t counts from 1: x_t <- (1 - alpha_t) x_(t-1) + alpha_t
    x_new with alpha_t = alpha s(t - tau); workers take g = f + rho / 2 ||x - x_tau||^2.
    """
    a, b = o.own.get("a", 0.5), o.own.get("b", 4.0)
    s = {
        "constant": lambda stale: 1.0,
        "polynomial": lambda stale: (stale + 1) ** -a,
        "hinge": lambda stale: 1.0 if stale <= b else 1 / (a * (stale - b) + 1),
    }[o.own.get("weighting", "polynomial")]

    def move(w, t, arrivals):
        ((_, tau, _, new, _),) = arrivals
        alpha_t = o.own.get("alpha", 0.6) * s(t + 1 - tau)
        return plus(scaled(1 - alpha_t, w), new, alpha_t)

    return asynchronous(o, 1, move, o.own.get("rho", 0.005))


def waiting(o):
    """FedAvg on the clock: a round takes as long as the slowest that takes part. With a deadline these are
    the silos drawn that would be done by then, as Nishio & Yonetani 2019 leave late ones out."""
    w, now, speed, seed = o.start, Fraction(0), speeds(o), o.clock.get("seed", o.seed)
    deadline = Fraction(str(o.clock.get("deadline", 10**9)))
    for t in range(o.rounds):
        takes = {}
        for k in o.cohort(t):
            u = float(rng.numpy_stream(seed, "jitter", k, t).random()) if "jitter" in o.clock else 0.5
            factor = Fraction(1 + o.clock.get("jitter", 0) * (2 * u - 1))
            takes[k] = len(o.batches(k, t)) / speed[k] * factor
        s = [k for k in takes if takes[k] <= deadline]
        ends, _, losses = zip(*[o.train(w, k, t) for k in s], strict=True)
        w, now = average(o.p(s), ends), now + max(takes[k] for k in s)
        late = {"late": [str(k) for k in takes if k not in s]} if len(s) < len(takes) else {}
        o.report(s, losses, virtual_seconds=float(now), **late)
    return w


def fedcompass(o):
    """Li et al. 2024, with the first training of APPFL: a client of no group is taken by itself, w += alpha
    st(t - tau) p_i delta_i; those of a group are taken at once, and with them who came too late."""
    low, high = o.own.get("min_local_steps", 20), o.own.get("max_local_steps", 100)
    wait, keep = (
        Fraction(str(o.own.get(key, usual)))
        for key, usual in (("latest_time_factor", 1.5), ("speed_momentum", 0.9))
    )
    seed, speed, p, everyone = o.clock.get("seed", o.seed), speeds(o), o.p(range(len(o.n))), range(len(o.n))
    w, t, now, pace, goa, running, groups, buffer = o.start, 0, Fraction(0), {}, {}, {}, {}, []
    begun, usual = Counter(), o.local

    def begin(k, q):
        o.local = {**usual, "steps": q}
        batches, seconds = o.batches(k, t, begun[k, t]), q / speed[k]
        if jitter := o.clock.get("jitter"):
            u = float(rng.numpy_stream(seed, "jitter", k, begun[k]).random())
            seconds *= Fraction(1 + jitter * (2 * u - 1))
        end, _, loss = o.train(w, k, t, batches=batches)
        running[k] = {"at": now + seconds, "from": now, "q": q, "t": t, "delta": minus(end, w), "loss": loss}
        begun.update([k, (k, t)])

    def assign(k):
        best = None
        for g, group in groups.items():
            q = math.floor((group["T_a"] - now) / pace[k])
            if low <= q <= high and not group["over"] and (best is None or q >= best[0]):
                best = q, g
        if best is None:
            q = -1
            for group in groups.values():
                if not group["over"] and now < group["T_max"]:
                    fastest = min(pace[i] for i in group["clients"] | group["arrived"].keys())
                    fits = math.floor((group["T_max"] + high * fastest - now) / pace[k])
                    q = max(q, fits) if fits <= high else q
            q = high if q < 0 else max(q, low)
            made = {"T_a": now + q * pace[k], "T_max": now + wait * q * pace[k]}
            groups[len(groups)] = {**made, "clients": set(), "arrived": {}, "over": False}
            best = q, len(groups) - 1
        groups[best[1]]["clients"].add(k)
        goa[k] = best[1]
        return best[0]

    def move(updates):
        nonlocal w, t
        for k, one in updates:
            fresh = (t - one["t"] + 1) ** -o.own.get("a", 0.5)
            w = plus(w, one["delta"], o.own.get("alpha", 0.9) * fresh * p[k])
        ks, losses = [k for k, _ in updates], [one["loss"] for _, one in updates]
        age = sum(t - one["t"] for _, one in updates) / len(updates)
        o.report(ks, losses, staleness=age, virtual_seconds=float(now))
        t += 1

    for k in everyone:
        begin(k, high)
    while t < o.rounds:
        over = [(group["T_max"], 1, g) for g, group in groups.items() if not group["over"]]
        now, timer, who = min([*((one["at"], 0, k) for k, one in running.items()), *over])
        group = groups.get(who if timer else goa.get(who))
        if timer:
            group["over"] = True
        else:
            one = running.pop(who)
            took = (one["at"] - one["from"]) / one["q"]
            pace[who] = (1 - keep) * pace.get(who, took) + keep * took
            if group is None:
                updates, buffer = [*buffer, (who, one)], []
                move(updates)
                begin(who, assign(who))
                continue
            group["clients"].discard(who)
            if group["over"]:
                buffer.append((who, one))
                begin(who, assign(who))
                continue
            group["arrived"][who] = one
            group["over"] = not group["clients"]
        if group["over"] and group["arrived"]:
            updates, buffer = [*buffer, *group["arrived"].items()], []
            move(updates)
            for k in sorted(group["arrived"], key=lambda k: (pace[k], k)):
                begin(k, assign(k))
    return w


def fedbuff(o):
    """Nguyen et al. 2022, Algorithm 1: w moves by eta_g / K times the sum of deltas, each times 1 / sqrt(1 +
    tau) as in section 5; beside equal shares also by n_k, as `[cohort] weights` says."""

    def move(w, t, arrivals):
        scale = [(1 + t - tau) ** -o.own.get("a", 0.5) for _, tau, _, _, _ in arrivals]
        deltas = [
            scaled(x, minus(new, start)) for x, (_, _, start, new, _) in zip(scale, arrivals, strict=True)
        ]
        return plus(w, average(o.p([k for k, *_ in arrivals]), deltas), o.server["lr"])

    return asynchronous(o, o.own.get("buffer", 10), move)


def feddf(o):
    """Lin et al. 2020, Algorithm 3, and 1 where there is one architecture."""
    nets = [o.net, *(network(table["name"]) for table in o.own["prototypes"])]
    w = [o.start, *(weights(o.folder.parent / table["weights"], nets[1]) for table in o.own["prototypes"])]
    x, _ = o.read(o.spec["public"], "public")
    for t in range(o.rounds):
        s, ends, losses, logits = o.cohort(t), {}, [], 0
        for k in s:
            o.net = nets[k % len(nets)]
            ends[k], _, loss = o.train(w[k % len(nets)], k, t)
            logits, losses = logits + o.model(ends[k]).eval()(x).detach() / len(s), [*losses, loss]
        o.report(s, losses)
        for index, o.net in enumerate(nets):
            same = [k for k in s if k % len(nets) == index]
            student = o.model(average(o.p(same), [ends[k] for k in same]) if same else w[index])
            optimizer = torch.optim.Adam(student.parameters(), lr=o.own["distill_lr"])
            order = rng.torch_stream(o.seed, "public", index, t)
            for i in in_batches(len(x), o.own["distill_batch"], order, 0, o.own["distill_steps"]):
                q, p = student(x[i]).log_softmax(1), logits[i].softmax(1)
                optimizer.zero_grad()
                (p * (p.log() - q)).sum(1).mean().backward()
                optimizer.step()
            w[index] = {name: v.clone() for name, v in student.state_dict().items()}
    o.server_keeps = {"w" if index == 0 else f"w_{index}": v for index, v in enumerate(w)}
    return w[0]


def fedexp(o):
    """Jhunjhunwala et al. 2023, Algorithm 1: w <- w + eta_g Delta, eta_g = max(1, sum_k ||Delta_k||^2 /
    (2M (||Delta||^2 + epsilon))).

    The paper counts silos alike. With shares p_k, sum_k p_k ||Delta_k||^2 takes the place of the mean of the
    squares. The norms are those of parameters; running statistics are averaged and not extrapolated.
    """
    w, epsilon = o.start, o.own.get("epsilon", 0.001)
    learned = [name for name, _ in o.net.named_parameters()]
    for t in range(o.rounds):
        s = o.cohort(t)
        ends, _, losses = zip(*[o.train(w, k, t) for k in s], strict=True)
        deltas = [minus(end, w) for end in ends]
        mean = average(o.p(s), deltas)
        squares = [norm({name: delta[name] for name in learned}) ** 2 for delta in deltas]
        over = sum(p * square for p, square in zip(o.p(s), squares, strict=True))
        eta_g = max(1.0, over / (2 * (norm({name: mean[name] for name in learned}) ** 2 + epsilon)))
        o.report(s, losses, eta_g=eta_g)
        w = {name: w[name] + (eta_g if name in learned else 1.0) * d for name, d in mean.items()}
    return w


def climb(o, net, k, i, rho):
    """Give the parameters the gradient at w + rho g / ||g||, g being the gradient at w; return the loss at w.

    The model is then what the pass at w has made of it, with the running statistics that it learned from
    that pass.
    """
    names, parameters = zip(*net.named_parameters(), strict=True)
    loss = o.cross_entropy(net, k, i)
    g = dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))
    after, length = {name: v.clone() for name, v in net.state_dict().items()}, norm(g)
    if length > 0:
        net.load_state_dict({**after, **plus({name: after[name] for name in names}, g, rho / length)})
        g = dict(zip(names, torch.autograd.grad(o.cross_entropy(net, k, i), parameters), strict=True))
        net.load_state_dict(after)
    for name, parameter in net.named_parameters():
        parameter.grad = g[name]
    return float(loss.detach())


def fedsam(o):
    """Qu et al. 2022, Algorithm 1 (FedSAM); Caldarola et al. 2022, the same of Foret et al. 2021's SAM.

    Qu et al. have a global learning rate eta_g; it is 1 here, as in FedAvg.
    """
    w, rho = o.start, o.own.get("rho", 0.05)
    for t in range(o.rounds):
        s, ends, losses = o.cohort(t), [], []
        for k in s:
            net, seen = o.model(w), []
            optimizer = o.optimizer(net.parameters(), t)
            for i in o.batches(k, t):
                seen += [climb(o, net, k, i, rho)] * len(i)
                if "clip_norm" in o.local:
                    length = norm({name: v.grad for name, v in net.named_parameters()})
                    for v in net.parameters():
                        v.grad *= min(1.0, o.local["clip_norm"] / length)
                optimizer.step()
            ends.append({name: v.clone() for name, v in net.state_dict().items()})
            losses.append(sum(seen) / len(seen))
        o.report(s, losses)
        w = average(o.p(s), ends)
    return w


def ifca(o):
    """Ghosh et al. 2020, Algorithm 1: option II (model averaging), for ifcasgd option I (gradients).

    Machine i takes the model j of least F_i(theta_j). Option II has theta_j become the mean of what its
    machines have come to, option I theta_j - gamma / m sum_i s_ij g_i. The paper counts machines alike; here
    they have the cohort's shares, in option I too, whose m is all machines. What theta_j begins at is left
    open: here at the elements of each tensor of the initial model in another order.
    """
    theta = [o.start]
    for j in range(1, o.own["clusters"]):
        draw = rng.torch_stream(o.seed, "cluster", j)
        theta.append(
            {
                name: v.flatten()[torch.randperm(v.numel(), generator=draw)].view(v.shape)
                for name, v in o.start.items()
            }
        )

    def nearest(i):
        risks = [o.risk(w, i) for w in theta]
        return risks.index(min(risks))

    for t in range(o.rounds):
        s, losses, own = o.cohort(t), [], []
        mine, shares = [nearest(i) for i in s], o.p(s)
        for i, j in zip(s, mine, strict=True):
            if o.own["name"] == "ifcasgd":
                own.append(o.gradient(theta[j], i))
                losses.append(float(o.loss.detach()))
            else:
                end, _, loss = o.train(theta[j], i, t)
                own.append(end)
                losses.append(loss)
        o.report(s, losses, cluster_silos={str(i): j for i, j in zip(s, mine, strict=True)})
        for j in {*mine}:
            of = [(p, one) for p, one, at in zip(shares, own, mine, strict=True) if at == j]
            whole = sum(p for p, _ in of)
            summed = average([p for p, _ in of], [one for _, one in of])
            theta[j] = (
                plus(theta[j], summed, -o.lr(t)) if o.own["name"] == "ifcasgd" else scaled(1 / whole, summed)
            )
    o.server_keeps = {"w" if j == 0 else f"w_{j}": w for j, w in enumerate(theta)}
    o.personal = {i: theta[nearest(i)] for i in range(len(o.n)) if nearest(i)}
    return theta[0]


def fedrep(o):
    """Collins et al. 2021, Algorithm 1: the head by tau_h steps with the representation fixed, then the
    representation with the head fixed; the representations are averaged.

    tau_h is so many epochs, and each of the two trainings draws the order of its batches anew.
    """
    prefixes = tuple(p.rstrip("*") for p in o.own.get("personal", ["head.*"]))
    at_home = {name for name in o.start if name.startswith(prefixes)}
    shared = o.start.keys() - at_home
    w, own = o.start, {k: {name: o.start[name] for name in at_home} for k in range(len(o.n))}
    for t in range(o.rounds):
        s, ends, losses = o.cohort(t), [], []
        for k in s:
            order, epochs = rng.torch_stream(o.seed, "train", k, t), o.own.get("head_epochs", 10)
            batches = in_batches(o.n[k], o.local["batch_size"], order, epochs)
            middle, _, _ = o.train({**w, **own[k]}, k, t, names=at_home, batches=batches)
            end, _, loss = o.train(middle, k, t, names=shared)
            own[k] = {name: end[name] for name in at_home}
            ends, losses = [*ends, end], [*losses, loss]
        o.report(s, losses)
        w = {name: v if name not in at_home else o.start[name] for name, v in average(o.p(s), ends).items()}
    o.personal = {k: {**w, **v} for k, v in own.items()}
    return w


def pfedme(o):
    """T. Dinh et al. 2020, Algorithm 1, for models without running statistics.

    A step sets theta near the minimum of f(theta; batch) + (lambda/2) ||theta - w_k||^2 and takes
    w_k <- w_k - eta lambda (w_k - theta); the server takes w <- (1 - beta) w + beta mean_k w_k. The paper
    leaves open how theta is found, to an accuracy nu: here by gradient steps from w_k. In the paper all silos
    train and a cohort is averaged; here the cohort alone trains.
    """
    w, pull = o.start, o.own.get("lambda", 15.0)
    for t in range(o.rounds):
        s, ends, losses = o.cohort(t), [], []
        for k in s:
            w_k, seen = w, []
            for i in o.batches(k, t):
                theta = w_k
                for step in range(o.own.get("inner_steps", 5)):
                    g = o.gradient(theta, k, i)
                    seen += [float(o.loss.detach())] * len(i) if step == 0 else []
                    g = plus(g, minus(theta, w_k), pull)
                    theta = plus(theta, g, -o.own.get("inner_lr", 0.01))
                w_k = plus(w_k, minus(w_k, theta), -o.lr(t) * pull)
            o.personal[k] = theta
            ends, losses = [*ends, w_k], [*losses, sum(seen) / len(seen)]
        o.report(s, losses)
        w = plus(w, average(o.p(s), [minus(end, w) for end in ends]), o.server["lr"])
    return w


def apfl(o):
    """Deng et al. 2020, Algorithm 1, for models without running statistics.

    All three steps are taken at the values before them: w_k <- w_k - eta grad f(w_k), v_k <- v_k - eta grad_v
    f(v-bar), which is eta alpha_k grad f(v-bar), and alpha_k <- alpha_k - eta <grad f(v-bar), v_k - w_k>, cut
    to [0, 1]. The loss that is told is f(w_k). The paper's personal model ends with the silo's own w_k, here
    with the averaged w.
    """
    w, v, alpha = o.start, {}, {}
    for t in range(o.rounds):
        s, ends, losses = o.cohort(t), [], []
        for k in s:
            w_k, seen, v[k], a = w, [], v.get(k, w), alpha.get(k, o.own.get("alpha", 0.5))
            for i in o.batches(k, t):
                g_mixed = o.gradient(plus(scaled(a, v[k]), w_k, 1 - a), k, i)
                g = o.gradient(w_k, k, i)
                seen += [float(o.loss.detach())] * len(i)
                slope = sum(float((g_mixed[name] * (v[k][name] - w_k[name])).sum()) for name in w)
                w_k, v[k] = plus(w_k, g, -o.lr(t)), plus(v[k], g_mixed, -o.lr(t) * a)
                if o.own.get("adaptive", False):
                    a = min(max(a - o.lr(t) * slope, 0.0), 1.0)
            alpha[k] = a
            ends, losses = [*ends, w_k], [*losses, sum(seen) / len(seen)]
        o.report(s, losses)
        w = average(o.p(s), ends)
    o.personal = {k: plus(scaled(alpha[k], v_k), w, 1 - alpha[k]) for k, v_k in v.items()}
    return w
