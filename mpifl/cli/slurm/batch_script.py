"""The batch script of a training: what it asks SLURM for, and the lines by which it goes on by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpifl.common import InputError

SECONDS_TO_SAVE, SECONDS_EARLY = 120, 60
"""The time before the end at which SLURM signals a job to save, and how much earlier it may signal."""

GOING_ON = r"""
# From here on the same in every job: stop before the time is up, queue again, go on.
latest() { ls "$run/checkpoints" 2>/dev/null | grep ^round_ | tail -n 1; }
before=$(latest)
# a lost node has SLURM queue the job again by itself: not for ever where no start brings a checkpoint more
starts=$(dirname "$run")/.$(basename "$run").starts
mkdir -p "$(dirname "$run")"
[[ $SLURM_RESTART_COUNT ]] || rm -f "$starts"
echo "after $before" >>"$starts"
if (($(grep -cx "after $before" "$starts") > 5)); then
    echo "5 starts without a checkpoint more than ${before:-none}: not started again, see above how they end"
    exit 1
fi
ranks='' signalled=1 over=''
# the ranks end their round, write a checkpoint, and exit with 75
trap 'signalled=1; kill -USR1 "$ranks"' USR1
trap 'signalled=1; over=1' TERM                 # cancelled, or out of time
"${start[@]}" "${train[@]}" --resume &          # starts again where there is no checkpoint
ranks=$!
while [[ $signalled ]]; do
    signalled=
    wait "$ranks"
    code=$?
done
if [[ $code = 0 && ! $run/model.safetensors -nt $run/job.toml ]]; then
    # a launcher that lost a node may call that a success, with an old model
    code=1
fi
if [[ $code = [023] || $over ]]; then
    [[ $over ]] || rm -f "$starts"
    exit "$code"                                # done; or wrong, or too few silos: more time would not help
fi
if [[ $(latest) = "$before" ]]; then
    echo "exit code $code without a checkpoint more than before: not queued again"
    exit "$code"
fi
echo "exit code $code after $(latest): queued again"
scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"""
"""The end of every batch script, also in `jobs/slurm`. The job continues after a signal, and after the
death of a rank or a node. It does not after a start without a new checkpoint: the next one would fail.
SLURM asks no script after a lost node, so a start after five of these ends at once."""

JOINING = r"""
# From here on the same at every site: end before the time is up, queue again, go on.
answered() { grep -c '"event":"answered"' "$journal" 2>/dev/null; }
before=$(answered)
# a lost node has SLURM queue the job again by itself: not for ever where no start answers a letter more
[[ $SLURM_RESTART_COUNT ]] || rm -f "$starts"
echo "after ${before:-0}" >>"$starts"
if (($(grep -cx "after ${before:-0}" "$starts") > 5)); then
    echo "5 starts without a letter more than ${before:-0}: not started again, see above how they end"
    exit 1
fi
ranks='' signalled=1 over='' late=''
# the ranks end before their next letter, and exit with 75; a letter that takes longer begins anew
queue_soon() { { sleep 60 && scontrol requeue "$SLURM_JOB_ID"; } >/dev/null 2>&1 & late=$!; }
trap 'signalled=1; kill -USR1 "$ranks"; [[ $late ]] || queue_soon' USR1
trap 'signalled=1; over=1' TERM                 # cancelled, or out of time
"${start[@]}" "${join[@]}" &
ranks=$!
while [[ $signalled ]]; do
    signalled=
    wait "$ranks"
    code=$?
done
[[ $late ]] && kill "$late"
if [[ $code = [02] || $over ]]; then
    [[ $over ]] || rm -f "$starts"
    exit "$code"                                # the run's end; or wrong: more time would not help
fi
if [[ $code = 75 ]]; then
    rm -f "$starts"                             # its time was up, perhaps without a letter
elif [[ $(answered) = "$before" ]]; then
    echo "exit code $code without a letter more than ${before:-0}: not queued again"
    exit "$code"
fi
echo "exit code $code, letters answered: $(answered); queued again"
scontrol requeue "$SLURM_JOB_ID"
exit "$code"
"""
"""The end of the batch script of a site, which waits for letters as long as the run goes on."""

_MARK = "# by `mpifl submit`, which keeps a script that was edited: "

FORCE = """[[ $SLURM_RESTART_COUNT ]] || train+=(--force)  # then the job is the run's own
"""


RESERVED = {"ntasks", "requeue", "no-requeue", "test-only", "wrap"}
"""What no word after `--` may ask for: the script's own, `--ranks`, and what would submit nothing."""


def directives(asked: Mapping[str, object], words: Sequence[str]) -> str:
    """Return the lines that sbatch reads.

    Args:
        asked: Options with their values; None for one that is left to the site, True for one without a value.
        words: Further options, as `--KEY=VALUE` or `--KEY`.

    Raises:
        InputError: a word is none of these, or an option that stands in `asked`; or a value cannot be
            written.
    """
    told = [(key, value) for key, value in asked.items() if value is not None]
    for word in words:
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not key:
            raise InputError(f"{word}, after --: give an option of sbatch in full, such as --comment=text")
        if key in asked or key in RESERVED:
            what = f"mpifl submit writes --{key} itself"
            raise InputError(f"{word}, after --: {what}; give its own option before --, or edit the script")
        told.append((key, value if equals else True))
    lines = [f"#SBATCH --{key}{'' if value is True else f'={_quoted(value)}'}\n" for key, value in told]
    return "".join(lines)


def marked(head: str, body: str) -> str:
    """Return a script with a line after its head by which `is_edited` knows it again."""
    digest = hashlib.sha256((head + body).encode()).hexdigest()
    return f"{head}{_MARK}{digest}\n{body}"


def is_edited(script: bytes) -> bool:
    """Return whether a script is another than `marked` made it."""
    text = script.decode(errors="replace")
    head, mark, rest = text.partition(_MARK)
    return not mark or marked(head, rest.partition("\n")[2]) != text


def _quoted(value: object) -> str:
    """Return a value in quotes for sbatch, which reads only double quotes and one line."""
    text = str(value)
    if any(character in text for character in '"\n\\'):
        raise InputError(
            f"{text!r}: sbatch cannot read this from a script; leave out quotes, backslashes, new lines"
        )
    return f'"{text}"' if any(character in text for character in " \t#'") else text


def beside(out: Path, ending: str) -> Path:
    """Return a file beside a run folder, with the folder's name and another ending; also for `.` and `..`."""
    out = out.resolve() if out.name in ("", "..") else out
    return out.with_name(f"{out.name}{ending}")
