"""What is read of what others wrote: who makes each kind of input,
who reads it, and what error is documented."""

from __future__ import annotations

from pydantic import ValidationError

from fuzzing.alignments import answers, judge, terms
from fuzzing.artefacts import make  # noqa: F401 - what `scripts/fuzz.py` asks for
from fuzzing.commands import commands, run_command
from fuzzing.folders import (
    check_folder,
    checkpoints,
    compare,
    fallback_checkpoint,
    federation,
    predict,
    read_checkpoint,
    read_folder,
    resume,
    runs,
    score_silos,
    shards,
    to_predict,
    watch,
)
from fuzzing.jobs import jobs, read_one_job
from fuzzing.letters import consent_to, invitations, letters, read_letter
from fuzzing.masked_letters import add_up, hand_over, shares, sums
from fuzzing.new_rows import new_rows, predict_new
from fuzzing.outcomes import Kind
from fuzzing.requests import answer_request, requests
from fuzzing.sites import agree, lists, offers
from fuzzing.sources import read_source, sources
from fuzzing.wire import decode, decode_payload, messages, payloads, reports, take_report
from mpifl.cli.align import read_terms
from mpifl.common.errors import InputError, RoundLost, ShardError
from mpifl.exchange.server_side.report_reading import Refused
from mpifl.report.judging.evaluate import evaluate_run
from mpifl.report.pages.run_page import write_report
from mpifl.run.folder.checkpoint import CheckpointError
from mpifl.wings.site import read_sites
from mpifl.wings.sites.letters import LetterFault

READ = (InputError,)
KINDS: dict[str, Kind] = {
    "federation.json": Kind(federation, read_folder, (ShardError,)),
    "federation.json, check": Kind(federation, check_folder, (ShardError,)),
    "shards": Kind(shards, read_folder, (ShardError,), cost=2),
    "shards, check": Kind(shards, check_folder, (ShardError,), cost=4),
    "checkpoints": Kind(checkpoints, read_checkpoint, (CheckpointError,)),
    "checkpoints, the latest": Kind(checkpoints, fallback_checkpoint, (CheckpointError,)),
    "runs, report": Kind(runs, write_report, READ),
    "runs, compare": Kind(runs, compare, READ),
    "runs, watch": Kind(runs, watch, READ),
    "runs, evaluate": Kind(runs, evaluate_run, READ),
    "runs, evaluate at silos": Kind(runs, score_silos, READ),
    "shards, predict": Kind(to_predict, predict, READ, cost=2),
    "runs, predict new rows": Kind(new_rows, predict_new, READ, cost=2),
    "runs, resume": Kind(runs, resume, READ),
    "jobs": Kind(jobs, read_one_job, READ),
    "sites.toml": Kind(lists, read_sites, READ),
    "offers": Kind(offers, agree, (ValidationError, InputError)),
    "letters": Kind(letters, read_letter, (LetterFault,), cost=2),
    "letters, requests": Kind(requests, answer_request, (), cost=2),
    "letters, sums": Kind(sums, hand_over, (ValidationError, InputError)),
    "letters, shares": Kind(shares, add_up, (RoundLost,), cost=8),
    "invitations": Kind(invitations, consent_to, READ),
    "terms": Kind(terms, read_terms, READ),
    "answers": Kind(answers, judge, (ValueError, InputError)),
    "messages": Kind(messages, decode, (ValidationError,)),
    "reports": Kind(reports, take_report, (Refused,)),
    "codecs": Kind(payloads, decode_payload, (ValueError,)),
    "sources": Kind(sources, read_source, READ),
    "commands": Kind(commands, run_command, (), cost=2),
}
