"""Masked sums over sites in one process: the bits of one world, and what a coordinator that lies gets."""

import dataclasses
import os
import shutil

import pytest
from unit.builders import Alone
from unit.sites.test_questions import SITES_OF, Here, bits, digest_of, folders, made, member, of_core  # noqa: F401

from mpifl.algorithms.scaffold import Scaffold
from mpifl.common import InputError, RoundLost
from mpifl.run.folder import read_metrics
from mpifl.training.loop import train
from mpifl.wings import wings_of
from mpifl.wings.masked import message_of, party_of, plain_sums
from mpifl.wings.site import Exchange, Identity, make_identity
from mpifl.wings.sites.asking_worker import CameBack
from mpifl.wings.sites.coordinating import coordinators
from mpifl.wings.sites.letters import LetterHeader, Member, SignedHeader, SumRecord, WithdrawRecord
from mpifl.wings.sites.masks import ALL_NUMBERS, Share, SiteParty
from mpifl.wire import Compute, Report, read_request

RUN, LIFE = "ab" * 16, "cd" * 16
SECURITY = {"security": {"colluding": 0.25}}


class Masked(Here):
    """Asks sites in this process, each with a folder, a key and a list of sites of its own.

    `lie` may change what a coordinator asks of a site in a sum; a site in `killed` forgets all that is not on
    its disk before it hands over a sum.
    """

    run = RUN

    def __init__(self, folder, job, lie=lambda site, record: record, killed=(), **more):
        super().__init__(folder, job, **more)
        self.lie, self.killed, self.handed, self.asked_of = lie, killed, {}, 0
        self.identities = {name: self._identity(name) for name in SITES_OF}
        members = [
            Member(name=name, key=self.identities[name].public, silos=silos)
            for name, silos in SITES_OF.items()
        ]
        self.roster = sorted(members, key=lambda one: one.key)
        listed = "".join(self.identities[name].listing(silos) for name, silos in SITES_OF.items())
        for name in SITES_OF:
            (self.at(name) / "sites.toml").write_text(listed)
        self.parties, self.refused, self.left, self.withdrawn = {}, {}, set(), []
        self.reports = []

    def at(self, name):
        return self.folder / f"site-{name}"

    def _identity(self, name) -> Identity:
        self.at(name).mkdir(mode=0o700, parents=True)
        return make_identity(self.at(name), name)

    def begin(self, job, spec, elements):
        super().begin(job, spec, elements)
        self.silos = {one.name: self.silos[one.name] for one in self.roster}
        self.spec = spec

    def party(self, name):
        """Return a site as a party, as a start of it makes one."""
        ids = {entry.name: silo for silo, entry in enumerate(self.spec.silos)}
        placed = {nth: [ids[silo] for silo in one.silos] for nth, one in enumerate(self.roster)}
        number = [one.name for one in self.roster].index(name)
        given = self.job, self.spec, self.job.build_algorithm().for_federation(self.spec)
        os.environ["MPIFL_SITE"] = str(self.at(name))
        key = Exchange(bytes([number + 1] * 32))
        masking = party_of(*given, placed, number, RUN, exchange=key)
        return SiteParty(masking, plain_sums(*given), number, RUN, self.roster, self.at(name))

    def came(self, question):
        self.n += 1
        self.asked_of, found = self.n, {}
        for site, digests in question.base.items():
            if self.away(site, question.request):
                found[site] = "away"
                continue
            os.environ["MPIFL_SITE"] = str(self.at(site))
            known = self.places.setdefault(site, {})
            if site not in self.running:
                self.running[site] = member(self.folder / site, self.job, SITES_OF[site], known)
                self.parties[site] = self.party(site)
            told = read_request(question.request.encode()).model_copy(update={"serial": 0})
            vectors = {name: one.clone() for name, one in question.vectors.items()}
            asked = digest_of(told, vectors, digests)
            answer = self.running[site].answer(self.n, told, vectors, digests, 0, question=asked)
            known |= dict.fromkeys(answer.states.values(), answer.place)
            report = Report.model_validate_json(Report(headers=list(answer.replies)).encode())
            self.reports.append(report)
            part = None
            if answer.plan is not None:
                message = message_of(told, vectors)
                part = self.parties[site].keep(self.n, told, message, answer.totals, answer.plan)
                part = part.model_dump(mode="json")
            found[site] = CameBack(report, [], [*answer.sums.values()], answer.states, part)
        return found

    def signed(self, site):
        header = LetterHeader(
            run=RUN,
            kind="answer",
            sender=self.identities[site].public,
            to="00" * 32,
            n=self.asked_of,
            salt="00" * 32,
            length=0,
            sha256="00" * 32,
        ).encode()
        return SignedHeader(header=header.decode(), signature=self.identities[site].sign("letter", header))

    def summed(self, plan, accepted):
        of, names = self.n, {number: self.roster[number].name for number in sorted(plan.parties)}
        self.n += 1
        told = plan.model_dump(mode="json")
        answers = [self.signed(name) for name in names.values()]
        record = SumRecord(
            life=LIFE, of=of, plan=told, accepted=list(accepted), answers=answers, withdrawn=self.withdrawn
        )
        found = {}
        for number, name in names.items():
            if name in self.killed:
                self.parties[name] = self.party(name)
            try:
                context, vectors = self.parties[name].share(self.lie(name, record))
                self.handed[name] = of, plan, vectors
                found[number] = Share(context, vectors)
            except InputError as error:
                self.refused[name] = str(error)
                found[number] = "hands over no sum"
        return found


def masked(job, run, resume=False, **more):
    here = more.pop("here", None) or Masked(run.with_name(f"{run.name}-sites"), job, **more)
    train(job, run, (), resume, Alone(), wings_of=lambda job: coordinators(job, wings_of(job), here))
    return here


@pytest.mark.parametrize("name", ["scaffold", "qfedavg"])
def test_the_bits_of_one_world_with_a_site_killed_before_each_sum(made, tmp_path, name):  # noqa: F811
    table = {"algorithm": {"name": name} | ({"q": 1.0} if name == "qfedavg" else {})}
    plain = made(**table, security={"masks": False})
    train(plain, tmp_path / "one", (), False, Alone(), wings_of=of_core)
    here = masked(made(**table, **SECURITY), tmp_path / "run", killed={"west"})
    assert bits(tmp_path / "run") == bits(tmp_path / "one")
    assert [record["parties"] for record in read_metrics(tmp_path / "run")] == [3] * 4
    lines = {site: (here.at(site) / "released.jsonl").read_text().count("\n") for site in SITES_OF}
    assert lines == dict.fromkeys(SITES_OF, 8), "four rounds, and a scoring of each"


def test_a_share_tells_the_coordinator_nothing_of_its_sum(made, tmp_path):  # noqa: F811
    here = masked(made(**SECURITY), tmp_path / "run")
    single = [header.scalars for one in here.reports for header in one.headers if hasattr(header, "scalars")]
    assert single == [{}] * 40, "five silos in four rounds, and a scoring of each"
    assert all("train_loss" in record for record in read_metrics(tmp_path / "run")), "its sum has no single's"
    for site, (of, plan, vectors) in here.handed.items():
        clear = here.parties[site]._kept.sums.own([one.name for one in plan.vectors], plan.scalars)
        assert here.parties[site]._kept.n == of
        for (name, share), own in zip(vectors.items(), clear, strict=True):
            assert not bool((share == own).any()), name
            differing = (share - own).bitwise_right_shift(56).unique()
            assert len(differing) > min(len(share), 40) / 2, "the mask's highest bits are not drawn"
    whole = sum(vectors[ALL_NUMBERS] for _, _, vectors in here.handed.values())
    assert whole[-2:].tolist() == [3, 5]


def changed(**more):
    return lambda site, record: record.model_copy(update=more) if site == "north" else record


def without(site):
    """Ask for the sum of the two other sites, of a plan that fits."""

    def lie(one, record):
        plan = {**record.plan, "parties": dict(record.plan["parties"])}
        gone = next(k for k, part in plan["parties"].items() if part["offer"]["site"] == site)
        answers = [
            signed
            for number, signed in zip(sorted(plan["parties"], key=int), record.answers, strict=True)
            if number != gone
        ]
        del plan["parties"][gone]
        left = {"west": [0, 1, 3], "south": [0, 2, 3, 4]}[site]
        return record.model_copy(update={"plan": plan, "accepted": left, "answers": answers})

    return lie


def renumbered(site, record):
    """Give each party the place of the next."""
    parts = record.plan["parties"]
    return record.model_copy(
        update={
            "plan": {
                **record.plan,
                "parties": {str((int(number) + 1) % 3): one for number, one in parts.items()},
            }
        }
    )


def planned(parties=None, **more):
    """Tell one site of another vector than it has, of other numbers, or of parties without the vector."""

    def lie(site, record):
        plan = dict(record.plan)
        if not parties:
            plan |= {name: more[name] for name in more if name == "scalars"}
            vector = {name: one for name, one in more.items() if name != "scalars"}
            plan["vectors"] = [plan["vectors"][0] | vector, *plan["vectors"][1:]]
        else:
            own = next(k for k, part in plan["parties"].items() if part["offer"]["site"] == site)
            plan["parties"] = {k: part if k == own else part | parties for k, part in plan["parties"].items()}
        return record.model_copy(update={"plan": plan}) if site == "north" else record

    return lie


OTHER_VECTORS = "the server plans to add up other vectors than this party has"
LIES = {
    "another length": (planned(length=33), OTHER_VECTORS),
    "another kind of vector": (planned(combined="summed"), OTHER_VECTORS),
    "a tiny total": (planned(total=0.0), "by what no silos weigh"),
    "a huge total": (planned(total=1e300), "by what no silos weigh"),
    "no numbers": (planned(scalars=[]), "other numbers than those"),
    "a number twice": (planned(scalars=["train_loss", "train_loss"]), "other numbers than those"),
    "others have no vectors": (planned(parties={"vectors": {}}), OTHER_VECTORS),
    "another question": (changed(of=0), "a sum is asked of letter 0, and this site has the sums of letter"),
    "no answers": (changed(answers=[]), "does not show an answer of each party"),
    "two sites only": (
        without("west"),
        "least = 3: 2 parties have a part in the sum, too few to hide one among them",
    ),
    "places of parties": (renumbered, "in the place of"),
    "a silo less": (changed(accepted=[0, 1, 2, 3]), "silo 'silo_0004.h5'"),
    "no plan": (changed(plan={"vectors": 3}), "the plan of the sum of letter 1 cannot be read"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_sum_that_is_not_what_it_should_be_is_not_handed_over(made, tmp_path, name):  # noqa: F811
    lie, line = LIES[name]
    job = made(**SECURITY)
    here = Masked(tmp_path / "sites", job, lie=lie)
    with pytest.raises(RoundLost, match="the sum was asked for, and can be asked for over no other silos"):
        masked(job, tmp_path / "run", here=here)
    assert any(line in told for told in here.refused.values()) or name == "a silo less", here.refused
    assert "north" not in here.handed or name == "a silo less"


def test_a_question_gets_one_sum_whatever_the_coordinator_forgets(made, tmp_path):  # noqa: F811
    """It goes on from its checkpoint without its own file of released sums, and without a silo."""
    job = made(**SECURITY, cohort={"quorum": 0.5}, checkpoint={"every": 1})
    here = Masked(tmp_path / "sites", job)
    masked(job, tmp_path / "run", here=here)
    shutil.rmtree(tmp_path / "run")
    before = {site: (here.at(site) / "released.jsonl").read_bytes() for site in SITES_OF}
    handlers = here.running["west"]._exchange._worker._handlers
    whole = handlers[Compute]
    handlers[Compute] = lambda id, *given: 1 / 0 if id == 4 else whole(id, *given)
    with pytest.raises(RoundLost):
        masked(job, tmp_path / "run", here=here)
    assert "and is now to be over other silos (without 'silo_0004.h5')" in here.refused["west"]
    assert before == {site: (here.at(site) / "released.jsonl").read_bytes() for site in SITES_OF}


def lied_about(made, tmp_path, change, **more):  # noqa: F811
    """Train while the site west changes what it hands over; return the line that ends it."""
    job = made(security={"colluding": 0.25, **more})
    here = Masked(tmp_path / "sites", job)
    usual = here.summed

    def summed(plan, accepted):
        found = usual(plan, accepted)
        number = [one.name for one in here.roster].index("west")
        return found | {number: change(found[number])}

    here.summed = summed
    with pytest.raises(RoundLost) as lost:
        masked(job, tmp_path / "run", here=here)
    return str(lost.value)


def test_a_sum_that_no_updates_within_the_range_can_make_ends_the_run(made, tmp_path):  # noqa: F811
    """Such a share moved the mean by 227, and nothing was said."""

    def change(share):
        (name, *_) = share.vectors
        vector = share.vectors[name].clone()
        vector[0] += 2**62
        return Share(share.context, {**share.vectors, name: vector})

    told = lied_about(made, tmp_path, change, range=128)
    assert "is larger than updates within the range can make it, so a site lies" in told


def test_a_site_that_masks_for_another_sum_is_named(made, tmp_path):  # noqa: F811
    told = lied_about(made, tmp_path, lambda share: Share("12" * 32, share.vectors))
    assert "site 'west' mask for another sum than most" in told


def test_what_leaves_too_few_sites_is_told_with_its_site(made, tmp_path):  # noqa: F811
    job = made(**SECURITY, cohort={"quorum": 0.5})
    here = Masked(tmp_path / "sites", job)
    usual = here.came

    def forged(question):
        found = usual(question)
        came = found["west"]
        headers = [one.model_copy(update={"weight": 3 * one.weight}) for one in came.report.headers]
        report = came.report.model_copy(update={"headers": headers})
        return found | {"west": dataclasses.replace(came, report=report)}

    here.came = forged
    with pytest.raises(
        RoundLost, match=r"least = 3: 2 sites .*the report of site 'west' was refused: .*weigh"
    ):
        masked(job, tmp_path / "run", here=here)


def test_an_offer_that_other_sites_would_refuse_costs_its_silos_before_the_sum(made, tmp_path):  # noqa: F811
    job = made(security={"colluding": 0.25, "least": 2}, cohort={"quorum": 0.5})
    here = Masked(tmp_path / "sites", job)
    usual = here.came

    def forged(question):
        found = usual(question)
        for came in found.values():
            if came.part and came.part["offer"]["site"] == "west":
                came.part["offer"]["key"] = "12" * 32
        return found

    here.came = forged
    masked(job, tmp_path / "run", here=here)
    assert not here.refused
    told = read_metrics(tmp_path / "run")
    assert {(record["parties"], *record["faults"]) for record in told} == {(2, "2", "4")}
    assert "its offer is not signed for this run" in told[0]["faults"]["2"]


def test_fewer_sites_than_least_are_refused_at_the_start(made, tmp_path):  # noqa: F811
    job = made(security={"least": 4})
    with pytest.raises(InputError, match=r"least = 4: the run has 3 sites, and each is one party"):
        masked(job, tmp_path / "run")


WEST = (2, 4)


class WithoutWest(Scaffold):
    """SCAFFOLD whose silos at the site west fail from the third round on."""

    def train_corrected(self, silo, w, c):
        if silo.round >= 2 and silo.id in WEST:
            raise OSError("gone")
        return super().train_corrected(silo, w, c)


class Leaving(Masked):
    """The site west leaves when it is bound to a sum of the third round; others hand theirs over."""

    asks = 0

    def __init__(self, *given, **more):
        super().__init__(*given, away=lambda site, asked: site in self.left, **more)

    def summed(self, plan, accepted):
        found = super().summed(plan, accepted)
        self.asks += 1
        if self.asks == 3:
            identity = self.identities["west"]
            said = WithdrawRecord(
                life=LIFE,
                run=RUN,
                round=2,
                work="train_corrected",
                of=self.n - 1,
                site=identity.public,
                signature="0" * 128,
            )
            signature = identity.sign("withdraw", said.said)
            self.withdrawn, self.left = [said.model_copy(update={"signature": signature})], {"west"}
            number = [one.name for one in self.roster].index("west")
            return found | {number: "has left the run"}
        return found


def forged(site, record):
    """Tell that a site has left which has not."""
    other = next(one for one in record.answers)
    return record.model_copy(
        update={
            "withdrawn": [one.model_copy(update={"signature": other.signature}) for one in record.withdrawn]
        }
    )


def of_another_round(site, record):
    told = [one.model_copy(update={"round": 1}) for one in record.withdrawn]
    return record.model_copy(update={"withdrawn": told})


LEAVING = {
    "algorithm": {"name": "scaffold"},
    "security": {"colluding": 0.25, "least": 2},
    "cohort": {"quorum": 0.5},
    "evaluate": {"silos": False},
}


def test_a_site_that_leaves_when_it_is_bound_is_done_without(made, tmp_path):  # noqa: F811
    """The run was lost: the sum could be asked for over no other silos."""
    tables = LEAVING | {"algorithm": {"name": f"{__name__}:WithoutWest"}, "security": {"masks": False}}
    train(made(**tables), tmp_path / "one", (), False, Alone(), wings_of=of_core)
    job = made(**LEAVING)
    here = masked(job, tmp_path / "run", here=Leaving(tmp_path / "sites", job))
    assert bits(tmp_path / "run") == bits(tmp_path / "one")
    assert [record["parties"] for record in read_metrics(tmp_path / "run")] == [3, 3, 2, 2]
    lines = {site: (here.at(site) / "released.jsonl").read_text().count("\n") for site in SITES_OF}
    assert lines == {"north": 5, "south": 5, "west": 3}


@pytest.mark.parametrize(
    ("lie", "line"),
    [
        (changed(withdrawn=[]), "and is now to be over other silos (without"),
        (of_another_round, "is to have left the run, and it has not said so"),
        (forged, "is to have left the run, and it has not said so"),
    ],
    ids=["untold", "of another round", "forged"],
)
def test_no_sum_is_made_without_a_site_that_has_not_said_that_it_leaves(made, tmp_path, lie, line):  # noqa: F811
    job = made(**LEAVING)
    here = Leaving(tmp_path / "sites", job, lie=lie)
    with pytest.raises(RoundLost, match="can be asked for over no other silos"):
        masked(job, tmp_path / "run", here=here)
    assert line in here.refused["north"]
