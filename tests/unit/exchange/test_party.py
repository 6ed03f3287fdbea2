"""What a party hands its sum over for, asked by a server that would see into it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mpifl.common import InputError
from mpifl.run.job.tables import SecuritySettings
from mpifl.wings.masked import MaskedParty, MaskedTerms, Question, Releases, Session, SumPlan
from mpifl.wings.masked.fixed_plan import PartyPlan, PlannedVector, message_of
from mpifl.wire import Compute

HOSTED = {1: [0, 1], 2: [2], 3: [3], 4: [4], 5: [5], 6: [6]}
"""The silos of each of six parties."""
NAMES = [f"silo {k}" for k in range(7)]
LENGTH = 300
EVERYONE = tuple(range(7))
RECEIVED = {"w": torch.linspace(0, 1, LENGTH)}


class World:
    """Six parties in one process, each with a site of its own; each draws the silos `drawn` itself."""

    def __init__(
        self,
        folder: Path,
        drawn: Collection[int] = EVERYONE,
        run: str = "run",
        holding: Collection[int] = EVERYONE,
        **keys: Any,
    ) -> None:
        settings = SecuritySettings(**keys)
        terms = MaskedTerms(
            run=run,
            digest="job",
            terms="terms",
            data=[f"shard {k}" for k in EVERYONE],
            job="demo",
            silos=NAMES,
            hosts=[rank for silo in EVERYONE for rank in HOSTED if silo in HOSTED[rank]],
            settings=settings,
            drawn=lambda round: drawn,
            purpose=lambda work: "evaluation" if work == "evaluate" else "training",
            holding=lambda work: holding if work == "evaluate" else EVERYONE,
            rounds=9,
        )
        sessions = {rank: Session(run, [NAMES[k] for k in silos]) for rank, silos in HOSTED.items()}
        sites = {rank: Releases(folder / f"site{rank}") for rank in HOSTED}
        self.parties = {rank: MaskedParty(terms, sessions[rank], sites[rank], bytes(32)) for rank in HOSTED}
        self.offers = {rank: party.offer for rank, party in self.parties.items()}
        self.serial = 0

    def question(
        self, rank: int, cohort: Collection[int] = EVERYONE, without: int = -1, **more: Any
    ) -> Question:
        """What an honest server asks a party: the parties of the accepted silos, in a request of its own."""
        accepted = [silo for silo in cohort if silo != without]
        ranks = [one for one, silos in HOSTED.items() if set(silos) & set(accepted)]
        parties = {
            one: PartyPlan(vectors={"delta": 0}, scalars=["loss"], offer=self.offers[one]) for one in ranks
        }
        vector = PlannedVector(name="delta", length=LENGTH, combined="weighted", total=7.0)
        request = Compute(round=3, work="train", cohort=list(cohort), serial=self.serial, scalars={"lr": 0.1})
        given = {
            "request": request,
            "message": message_of(request, RECEIVED),
            "plan": SumPlan(vectors=[vector], scalars=["loss"], parties=parties),
            "accepted": accepted,
            "grids": [2.0**-40],
            "noise": [0.0],
            "rank": rank,
            "answers": {silo: f"answer {silo}" for silo in HOSTED[rank] if silo in accepted},
        }
        return Question(**(given | more))

    def ask(self, rank: int, *args: Any, sums: list[Tensor] | None = None, **more: Any) -> str:
        """Ask a party as `question` says, by a number that is new."""
        self.serial += 1
        return self.parties[rank].ready(self.question(rank, *args, **more), sums or own_of(rank))

    def released(self, rank: int, *args: Any, **more: Any) -> list[Tensor]:
        """Have a party hand its sum over; return it as it leaves."""
        self.ask(rank, *args, **more)
        self.parties[rank].release()
        sums = own_of(rank)
        self.parties[rank].mask(sums)
        return sums


def own_of(rank: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(rank)
    return [torch.randint(-(2**40), 2**40, (n,), generator=draw) for n in (LENGTH + 2, 12)]


def changed(vector: Tensor, at: int = 17) -> Tensor:
    """The same but for the last bit of one element."""
    found = vector.clone()
    found[at] = torch.nextafter(found[at], torch.tensor(2.0))
    return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_masks_of_all_parties_cancel_and_those_of_fewer_do_not(world: World) -> None:
    serial = world.serial + 1
    contexts, left = set(), []
    for rank in HOSTED:
        world.serial = serial - 1  # one request to all of them
        contexts.add(world.ask(rank))
        world.parties[rank].release()
        left.append(own_of(rank))
        world.parties[rank].mask(left[-1])
    assert len(contexts) == 1
    for nth in range(2):
        clear = sum(own_of(rank)[nth] for rank in HOSTED)
        assert torch.equal(sum(one[nth] for one in left), clear)
        for leaver in range(6):
            partial = sum(one[nth] for k, one in enumerate(left) if k != leaver)
            missing = own_of(leaver + 1)[nth]
            assert not torch.equal(partial, clear - missing)
            assert int((partial - clear + missing).bitwise_right_shift(56).abs().max()) > 1, "of 64 bits"


def test_a_party_that_offers_the_twin_of_anothers_key_unmasks_nobody(tmp_path: Path) -> None:
    """X25519 leaves out a key's top bit: rank 2 has one secret with the ranks on both of its sides."""
    world = World(tmp_path, drawn=(0, 1, 2, 3))
    key = bytearray.fromhex(world.offers[1]["key"])
    key[31] ^= 0x80
    world.offers[3] = world.offers[3] | {"key": key.hex()}
    left = world.released(2, (0, 1, 2, 3))
    for masked, own in zip(left, own_of(2), strict=True):
        assert not bool((masked == own).any())


TOLD = {
    "an element of w": lambda q: {"message": message_of(q.request, {"w": changed(RECEIVED["w"])})},
    "the shape of w": lambda q: {"message": message_of(q.request, {"w": RECEIVED["w"].view(2, -1)})},
    "another vector": lambda q: {"message": message_of(q.request, {**RECEIVED, "c": torch.zeros(1)})},
    "a number": lambda q: {
        "message": message_of(q.request.model_copy(update={"scalars": {"lr": 0.2}}), RECEIVED)
    },
    "what else must be the same": lambda q: {"about": ["other answers"]},
    "the round": lambda q: {"request": q.request.model_copy(update={"round": 4})},
    "the attempt": lambda q: {"request": q.request.model_copy(update={"attempt": 1})},
    "the serial number": lambda q: {"request": q.request.model_copy(update={"serial": 999})},
    "the work": lambda q: {"request": q.request.model_copy(update={"work": "evaluate"})},
    "the accepted silos": lambda q: {"accepted": q.accepted[1:]},
    "the grid": lambda q: {"grids": [2.0**-41]},
    "the size of the noise": lambda q: {"noise": [2.0**30]},
    "a vector's name": lambda q: {"plan": _planned(q, name="gamma")},
    "a vector's length": lambda q: {"plan": _planned(q, length=LENGTH - 1)},
    "how it is combined": lambda q: {"plan": _planned(q, combined="uniform")},
    "what all weigh together": lambda q: {"plan": _planned(q, total=8.0)},
    "the numbers": lambda q: {"plan": _unnumbered(q)},
    "the numbers of a party": lambda q: {"plan": _having(q, 5, ["accuracy", "loss"])},
    "a party less": lambda q: {"plan": _without(q, 5), "accepted": [k for k in q.accepted if k != 5]},
    "a party's key": lambda q: {"plan": _offering(q, 5, key=Session("run", ["x"]).offer.key)},
}
"""What a server may tell one party otherwise than the others."""


def _planned(question: Question, **more: Any) -> SumPlan:
    (vector,) = question.plan.vectors
    return question.plan.model_copy(update={"vectors": [vector.model_copy(update=more)]})


def _without(question: Question, rank: int) -> SumPlan:
    left = {k: part for k, part in question.plan.parties.items() if k != rank}
    return question.plan.model_copy(update={"parties": left})


def _having(question: Question, rank: int, numbers: list[str]) -> SumPlan:
    part = question.plan.parties[rank].model_copy(update={"scalars": numbers})
    return question.plan.model_copy(update={"parties": {**question.plan.parties, rank: part}})


def _unnumbered(question: Question) -> SumPlan:
    parts = {k: one.model_copy(update={"scalars": []}) for k, one in question.plan.parties.items()}
    return question.plan.model_copy(update={"scalars": [], "parties": parts})


def _offering(question: Question, rank: int, **more: Any) -> SumPlan:
    part = question.plan.parties[rank]
    part = part.model_copy(update={"offer": {**(part.offer or {}), **more}})
    return question.plan.model_copy(update={"parties": {**question.plan.parties, rank: part}})


@pytest.mark.parametrize("what", TOLD)
def test_whoever_is_told_something_else_masks_for_something_else(tmp_path: Path, what: str) -> None:
    world = World(tmp_path)
    truth = world.question(2)
    question = replace(truth, **TOLD[what](truth))
    told = World(tmp_path / "again")
    told.parties, told.offers = world.parties, world.offers
    context = world.parties[1].ready(_asked_of(1, truth), own_of(1))
    numbered = question.request if question.request.serial else _numbered(question, 1)
    assert world.parties[2].ready(replace(question, request=numbered), own_of(2)) != context
    honest = world.parties[3].ready(_asked_of(3, truth), own_of(3))
    assert honest == context


def _asked_of(rank: int, question: Question) -> Question:
    answers = dict.fromkeys(HOSTED[rank], "x")
    return replace(question, rank=rank, answers=answers, request=_numbered(question, 1))


def _numbered(question: Question, serial: int) -> Compute:
    return question.request.model_copy(update={"serial": serial})


def test_a_number_that_was_used_is_refused(world: World) -> None:
    world.ask(1)
    for serial in (world.serial, 0):
        with pytest.raises(InputError, match="by a number that was used"):
            world.parties[1].ready(
                replace(world.question(1), request=_numbered(world.question(1), serial)), []
            )


OTHER_SETS = {
    "a silo that was late": ({"without": 6}, "without 'silo 6'"),
    "a death that is claimed": ({"cohort": (0, 1, 2, 3, 4, 5)}, "without 'silo 6'"),
    "a silo of a party that stays": ({"without": 1}, "without 'silo 1'"),
}


@pytest.mark.parametrize("why", OTHER_SETS)
def test_one_question_has_one_set(world: World, tmp_path: Path, why: str) -> None:
    """By whatever name a second one comes: the difference would be a silo's delta."""
    asked, line = OTHER_SETS[why]
    world.released(2)
    for again in (world, World(tmp_path)):  # the same start of the site, and after a restart
        for rank in again.offers:
            again.offers[rank] = again.parties[rank].offer
        with pytest.raises(InputError, match=f"round 4 of job 'demo' is not released.*{line}.*continue with"):
            again.ask(2, **asked)
        again.ask(2)  # the same sum tells nothing new


def test_a_run_of_another_job_cannot_ask_the_same_over_another_set(world: World, tmp_path: Path) -> None:
    world.released(2)
    other = World(tmp_path, drawn=(0, 1, 2, 3, 4, 5), run="another fraction")
    with pytest.raises(InputError, match=r"was asked the same.*without 'silo 6'"):
        other.ask(2, (0, 1, 2, 3, 4, 5))
    message = message_of(world.question(2).request, {"w": changed(RECEIVED["w"])})
    other.ask(2, (0, 1, 2, 3, 4, 5), message=message)  # what masks do not protect from: another question


def test_another_answer_to_the_same_question_is_refused(world: World) -> None:
    world.released(2)
    with pytest.raises(InputError, match="the answer of silo 'silo 2' is another now"):
        world.ask(2, answers={2: "another"})


def test_noise_of_another_size_is_refused_where_the_question_was_answered(tmp_path: Path) -> None:
    """Both sums together would have less of it."""
    World(tmp_path).released(2, noise=[2.0**30])
    for more in ({"noise": [2.0**31]}, {"noise": [0.0]}):
        with pytest.raises(InputError, match="is now asked with other noise"):
            World(tmp_path).ask(2, **more)
    with pytest.raises(InputError, match="is now asked with other noise"):
        World(tmp_path, colluding=0.5).ask(2, noise=[2.0**30])


def test_a_site_that_demands_more_cannot_give_the_same_sum_other_noise_in_another_run(tmp_path: Path) -> None:
    """The ledger of its budget knows the question, and would count nothing for a second draw."""
    World(tmp_path, drawn=range(6)).released(2, range(6), noise=[2.0**30])
    World(tmp_path, drawn=range(6), run="in another folder").ask(2, range(6), noise=[2.0**30])
    more = World(tmp_path, drawn=range(6), run="in another folder", colluding=0.5)
    with pytest.raises(
        InputError, match="asked the same, and its noise is to be of 3 shares, where it was of 4"
    ):
        more.ask(2, range(6), noise=[2.0**30])
    more.ask(2, range(6))  # without noise there is nothing to draw


@pytest.mark.parametrize("named", ["cohort", "accepted"])
def test_a_silo_that_is_named_twice_is_refused(world: World, named: str) -> None:
    """Each share of noise is the smaller, the more silos are said to bring one."""
    usual = world.question(2)
    request = usual.request.model_copy(update={"serial": 9, "cohort": [*EVERYONE, *EVERYONE]})
    told = {"cohort": {"request": request}, "accepted": {"accepted": [*EVERYONE, *EVERYONE]}}[named]
    with pytest.raises(InputError, match="the server names a silo twice"):
        world.ask(2, **told)


def test_those_who_are_left_out_count_as_honest(tmp_path: Path) -> None:
    """Of seven silos two may collude. Whoever leaves two others out has as many shares of noise as before."""
    question = World(tmp_path).question(2)
    few = replace(question, accepted=[0, 1, 2, 3, 4])
    party = World(tmp_path).parties[2]
    assert [party._sure(one) for one in (question, few)] == [5, 3]
    none = replace(question, accepted=[0, 1])
    party._check_noise(none, party._sure(none))  # without noise nothing depends on it
    with pytest.raises(InputError, match="all 2 silos of the sum may collude, and none is sure to add noise"):
        party._check_noise(replace(none, noise=[2.0**30]), party._sure(none))


def test_silos_that_are_not_drawn_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path, drawn=(0, 1, 2, 3, 4, 5))
    with pytest.raises(
        InputError, match="silo 'silo 6' is not one of those that this site draws for round 4"
    ):
        world.ask(2)
    with pytest.raises(InputError, match="silo '99' is not one"):
        world.ask(2, accepted=[0, 1, 2, 3, 4, 99], request=_asked(world, (0, 1, 2, 3, 4, 5)))
    world.ask(2, (0, 1, 2, 3, 4, 5))
    evaluation = world.question(2).request.model_copy(update={"work": "evaluate", "serial": 50})
    world.parties[2].ready(replace(world.question(2), request=evaluation), own_of(2))


def _asked(world: World, cohort: Collection[int]) -> Compute:
    return Compute(round=3, work="train", cohort=list(cohort), serial=world.serial + 1)


def test_fewer_parties_than_least_are_too_few(tmp_path: Path) -> None:
    world = World(tmp_path, drawn=(0, 1, 2, 3), colluding=0.0)
    with pytest.raises(InputError, match=r"least = 3: 2 parties .*start more, or use another least"):
        world.ask(1, (0, 1, 2, 3), without=3)
    assert World(tmp_path / "2", drawn=(0, 1, 2, 3), least=2, colluding=0.0).ask(1, (0, 1, 2, 3), without=3)


@pytest.mark.parametrize(("holding", "few"), [((2, 3), 2), ((0, 1), 1), ((0, 2, 3), 0)])
def test_a_party_without_held_out_rows_hides_no_scores(
    tmp_path: Path, holding: tuple[int, ...], few: int
) -> None:
    """It adds zeros, so the sum would be the others' alone."""
    world = World(tmp_path, holding=holding)
    evaluation = world.question(2).request.model_copy(update={"work": "evaluate", "serial": 50})
    asked = replace(world.question(2), request=evaluation)
    if not few:
        assert world.parties[2].ready(asked, own_of(2))
        return
    with pytest.raises(InputError, match=rf"least = 3: {few} parties have a part in the sum"):
        world.parties[2].ready(asked, own_of(2))
    assert world.ask(3), "a training has rows of all"


@pytest.mark.parametrize(
    ("colluding", "gone", "enough"),
    [(1 / 3, 1, True), (1 / 3, 2, False), (0.0, 2, True), (0.6, 1, True), (1 - 2**-53, 0, True)],
)
def test_a_set_shares_an_honest_party_with_any_other(
    tmp_path: Path, colluding: float, gone: int, enough: bool
) -> None:
    world = World(tmp_path, colluding=colluding)
    cohort = [silo for silo in EVERYONE if silo < 7 - gone]
    asked = {"request": world.question(1).request.model_copy(update={"serial": 1}), "accepted": cohort}
    if enough:
        world.ask(1, cohort, **asked)
    else:
        with pytest.raises(
            InputError, match=rf"{6 - gone} of 6 parties .* too few; bring back 'silo 5', 'silo 6'"
        ):
            world.ask(1, cohort, **asked)


@pytest.mark.parametrize("work", ["train", "evaluate"])
def test_a_server_that_asks_few_of_those_who_are_drawn_gets_nothing(tmp_path: Path, work: str) -> None:
    """It has two of six parties on its side, and asks these and one other alone: the sum less theirs is that
    party's."""
    world = World(tmp_path)
    few = (2, 5, 6)
    request = Compute(round=3, work=work, cohort=list(few), serial=1)
    who = "bring back 'silo 0', 'silo 1', 'silo 3' and 1 more"
    with pytest.raises(InputError, match=f"3 of 6 parties have a part in the sum, too few; {who}"):
        world.parties[2].ready(replace(world.question(2, few), request=request), own_of(2))


def test_a_server_cannot_count_a_silo_out_of_a_set_and_have_it_in_the_sum(tmp_path: Path) -> None:
    """It tells all that silo 6 does not count, while its party is in the sum; next time it is not. Both sums
    would be of one set to every ledger, and their difference the silo's answer."""
    world = World(tmp_path)
    six = world.question(6)
    request = _numbered(six, 1)
    told = replace(six, accepted=(0, 1, 2, 3, 4, 5), request=request)
    with pytest.raises(InputError, match="silo 'silo 6' is in this site's sum, and is not to count"):
        world.parties[6].ready(told, own_of(6))


def test_a_silo_that_failed_cannot_be_counted_in(tmp_path: Path) -> None:
    """The sum without it would stand for the one with it, which is asked for when it is well."""
    world = World(tmp_path)
    question = replace(world.question(1), answers={0: "answer 0"}, request=_numbered(world.question(1), 1))
    with pytest.raises(InputError, match="silo 'silo 1' counts, and is not in this site's sum"):
        world.parties[1].ready(question, own_of(1))


def test_an_offer_that_is_another_or_none_is_refused(world: World) -> None:
    truth = world.question(2)
    for offer, line in (
        (None, "what rank 4 offers for its keys cannot be read"),
        ({}, "what rank 4 offers for its keys cannot be read"),
        ({"key": "0" * 64, "silos": ["silo 5"], "more": 1}, "cannot be read"),
        ({"key": "0" * 64, "silos": []}, "cannot be read"),
        ({"key": "0" * 63, "silos": ["silo 4"]}, "cannot be read"),
        ({"key": "0" * 64, "silos": ["silo 4"]}, "a secret that all know"),
        ({"key": world.offers[3]["key"], "silos": ["silo 4"]}, "is offered twice"),
        ({"key": "12" * 32, "silos": ["silo 4", "silo 3"]}, "silo 'silo 3' is offered twice"),
        (
            {"key": "12" * 32, "silos": ["silo 9"]},
            "silo 'silo 4' counts, and no party has offered a key for it",
        ),
    ):
        world.serial += 1
        part = truth.plan.parties[4].model_copy(update={"offer": offer})
        plan = truth.plan.model_copy(update={"parties": {**truth.plan.parties, 4: part}})
        with pytest.raises(InputError, match=line):
            world.parties[2].ready(
                replace(truth, plan=plan, request=_numbered(truth, world.serial)), own_of(2)
            )
    own = _offering(truth, 2, key="12" * 32)
    with pytest.raises(InputError, match="the server hands around another offer of it"):
        world.parties[2].ready(replace(truth, plan=own, request=_numbered(truth, 90)), own_of(2))
    with pytest.raises(InputError, match="the server leaves its offer out"):
        world.parties[2].ready(
            replace(truth, plan=_without(truth, 2), request=_numbered(truth, 91)), own_of(2)
        )


def test_nothing_is_masked_that_was_not_agreed_on_last(world: World) -> None:
    world.released(2)
    with pytest.raises(AssertionError):
        world.parties[2].mask(own_of(2))
    world.ask(3)
    with pytest.raises(InputError, match="number that was used"):
        world.parties[3].ready(world.question(3), own_of(3))
    with pytest.raises(AssertionError):
        world.parties[3].release()


def test_what_leaves_is_noise_to_whoever_lacks_a_key(world: World) -> None:
    sums = world.released(2)
    clear = own_of(2)
    for masked, own in zip(sums, clear, strict=True):
        assert not torch.equal(masked, own)
    bound = 5 / LENGTH**0.5
    assert abs(float(torch.corrcoef(torch.stack([sums[0].double(), clear[0].double()]))[0, 1])) < bound
    again = world.released(2)
    assert not torch.equal(again[0], sums[0]), "each time under other masks"
    assert abs(float(torch.corrcoef(torch.stack([sums[0].double(), again[0].double()]))[0, 1])) < bound


def test_each_pair_of_masks_is_for_one_context(world: World) -> None:
    """Two sums of one party under the same masks would tell their difference."""
    first: Mapping[str, Any] = {"sums": None}
    one = world.released(2, **first)[0] - own_of(2)[0]
    two = world.released(2)[0] - own_of(2)[0]
    assert int((one == two).sum()) == 0


@pytest.mark.parametrize("round", [-1, 9, 10**12])
def test_a_round_that_the_job_has_not_is_refused(world: World, round: int) -> None:
    """Among any number of rounds there is one that draws whom the server likes."""
    usual = world.question(2)
    asked = usual.request.model_copy(update={"round": round, "serial": 5})
    with pytest.raises(InputError, match="is not one of the job's 9; the server is broken"):
        world.parties[2].ready(replace(usual, request=asked), own_of(2))
    late = usual.request.model_copy(update={"round": 9, "serial": 6, "work": "evaluate"})
    world.parties[2].ready(replace(usual, request=late), own_of(2))
