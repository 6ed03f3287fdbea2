"""What a server has let out, by what other ranks may know it."""

from pathlib import Path

from mpifl.run.job.tables import PrivacySettings
from mpifl.wings.privacy import Account, Steps
from mpifl.wings.privacy.released_account import LINES


def test_what_ranks_are_told_of_the_answers_cannot_be_found_without_the_secret(tmp_path: Path) -> None:
    """A question holds the sum without noise: who guesses it would see that the guess is right."""
    settings = PrivacySettings(level="silo", noise_at="server", clip=1.0, noise=1.0, delta=0.01)

    def account(run: str) -> Account:
        return Account(tmp_path / run, settings, "toy", "digest of the job", 5)

    told = [account(run).release("question", "answer", 0, Steps(1.0, 1.0, 1)) for run in ("one", "two")]
    assert told[0][LINES] != told[1][LINES]
    account("one").check(told[0])
