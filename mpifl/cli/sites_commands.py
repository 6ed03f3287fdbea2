"""The commands of a site: `identity`, by what others know it, and `sites`, `consent`, `join` and `withdraw`,
for runs whose sites start their own ranks."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from mpifl.cli import ending
from mpifl.cli.command_options import JobFile, Set
from mpifl.common import CommandLine, InputError, count_of, one_line
from mpifl.common.machine import imports, signals, tuning

app = CommandLine(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Make, show and check by what other sites know this one.",
)
sites = CommandLine(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Prepare a run whose sites start their own ranks.",
)
_Link = Annotated[Path, typer.Argument(metavar="LINK", help="The folder with the invitation.")]
_Shards = Annotated[Path, typer.Option(metavar="DIR", help="The folder of this site's shards.")]


@app.command()
def make(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="What all sites call this one; its host by default."),
    ] = None,
) -> None:
    """Make this site's key in the folder that MPIFL_SITE names; an existing key is kept."""
    from mpifl.wings.site import make_identity

    made = make_identity(_folder(), name if name is not None else socket.gethostname())
    typer.echo(f"site {made.name!r} has a key; give all sites what `mpifl identity show` prints")


@app.command()
@sites.command("entry")
def show(
    silos: Annotated[
        list[str], typer.Option("--silos", metavar="NAME", help="A silo of this site; for more, again.")
    ] = [],  # noqa: B006
) -> None:
    """Print this site's entry for the sites.toml of every site."""
    from mpifl.wings.site import identity_of

    folder = _folder()
    identity = identity_of(folder)
    if identity is None:
        raise InputError(f"{folder}: has no identity.key; make it by `mpifl identity make`")
    typer.echo(identity.listing(silos), nl=False)
    if not silos:
        typer.echo("fill in silos: the names that federation.json has for this site's", err=True)


@app.command()
def check(
    shards: Annotated[
        Path | None, typer.Argument(metavar="[SHARDS]", help="A shard folder, whose silos all need a site.")
    ] = None,
) -> None:
    """Check that this site's key, its sites.toml and a federation's silos fit; each problem is one line."""
    folder = _folder()
    found = list(_problems(folder, shards))
    for problem in found:
        typer.echo(f"error: {one_line(problem)}", err=True)
    if found:
        raise typer.Exit(ending.WRONG)
    typer.echo(f"{folder}: the key and the list of sites fit" + (f", and {shards}" if shards else ""))


def _problems(folder: Path, shards: Path | None) -> Iterator[str]:
    from mpifl.wings.site import identity_of, problems_of, sites_of

    try:
        identity, sites = identity_of(folder), sites_of(folder)
        silos = _silos(shards) if shards else []
    except InputError as error:
        yield str(error)
        return
    if sites is None:
        wanted = "write there what `mpifl identity show` prints at each site"
        yield f"{folder / 'sites.toml'}: is not there; {wanted}"
    else:
        yield from problems_of(identity, sites, silos)


def _silos(shards: Path) -> list[str]:
    """Return the names of a federation's silos."""
    from mpifl.data.shards import read_any

    return [entry.name for entry in read_any(shards).silos]


def _folder() -> Path:
    from mpifl.wings.site import site_folder

    return site_folder("mpifl identity", "this site's key and its list of sites")


@sites.command()
def init(
    job: JobFile,
    listed: Annotated[Path, typer.Option("--sites", metavar="FILE", help="The list of sites, sites.toml.")],
    link: Annotated[Path, typer.Option(metavar="DIR", help="The folder that all sites synchronise.")],
    out: Annotated[Path, typer.Option(metavar="RUN", help="The run folder.")],
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="https://HOST:PORT, where `sites serve` will listen.")
    ] = None,
    cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --server: its certificate, whose key sites then demand."),
    ] = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Invite sites to a run: write the signed invitation into the folder that all sites synchronise.

    With --server no folder is synchronised: sites get the invitation, and open HTTPS to `mpifl sites serve`.
    The folder of MPIFL_SITE holds the coordinator's identity, and gets the run's key.
    """
    from mpifl.run.job import read_job
    from mpifl.wings.site import site_folder
    from mpifl.wings.sites import invite
    from mpifl.wings.sites.consents import FEWEST_DIGITS, in_fours

    folder = site_folder("mpifl sites init", "the coordinator's key")
    https = _server(server, cert)
    made = invite(read_job(job, tuple(set_)), listed, link, out, folder, https)
    silos = sum(len(one.silos) for one in made.site)
    told = f"{count_of(len(made.site), 'site')}, {count_of(silos, 'silo')}, job {made.job_digest[:8]}"
    typer.echo(f"{link / 'invitation.toml'} is written: {told}")
    key = in_fours(made.key[:FEWEST_DIGITS])
    other = "this folder" if https is None else "the invitation"
    typer.echo(f"Your key: {key}; say it to each site by another way than {other}")
    words = shlex.join(["mpifl", "train", str(job), *(f"--set={one}" for one in set_), "--out", str(out)])
    typer.echo(f"Start the coordinator by `{words}`")
    if https is not None:
        words = shlex.join(["mpifl", "sites", "serve", str(link)])
        typer.echo(f"Send {link / 'invitation.toml'} to each site, and serve the folder by `{words}`")


def _server(url: str | None, certificate: Path | None) -> Any:
    """Return the server that an invitation names, None for none."""
    from pydantic import ValidationError

    from mpifl.wings.sites.consents import HttpsServer
    from mpifl.wings.sites.https import key_in

    if url is None:
        if certificate is not None:
            raise InputError(f"--cert {certificate}: is for a server; give --server, or leave it out")
        return None
    try:
        return HttpsServer(url=url.rstrip("/"), key="" if certificate is None else key_in(certificate))
    except ValidationError:
        raise InputError(f"--server {url}: takes https://HOST or https://HOST:PORT") from None


@sites.command()
def serve(
    link: Annotated[Path, typer.Argument(metavar="LINK", help="The coordinator's folder of the run.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Such as 0.0.0.0:8443.")],
    cert: Annotated[Path, typer.Option(metavar="FILE", help="The server's certificate, PEM.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="Its private key, PEM.")],
    quota: Annotated[float, typer.Option(min=0.001, help="GB of each site's letters, at most.")] = 64.0,
) -> None:
    """Serve a run's folder to its sites by HTTPS until a signal comes. A site reaches its own letters alone.

    The server may run as another user than the coordinator, or on another machine that shares the folder.
    It has no key of the run, and opens no letter.
    """
    signals.install()
    from mpifl.wings.sites import https

    https.serve(link, listen, cert, key, int(quota * 1e9), lambda line: typer.echo(line))


def consent(
    link: _Link,
    coordinator: Annotated[
        str,
        typer.Option(metavar="KEY", help="The coordinator's key, 32 digits or more, by a call."),
    ],
    figures: Annotated[
        list[str],
        typer.Option("--figures", metavar="NAME", help="A silo's number that may leave; for more, again."),
    ] = [],  # noqa: B006
    questions: Annotated[
        int | None, typer.Option(min=1, help="How many questions are answered; by default 4 a round and run.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="How many runs of this job.")] = 1,
    singles: Annotated[bool, typer.Option("--singles", help="A silo's own update may leave.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Agree without being asked.")] = False,
) -> None:
    """Show what a run would do at this site and what would leave it, and write consent.toml if you agree.

    The folder of MPIFL_SITE holds this site's identity and its consents.
    """
    from mpifl.wings.site import site_folder
    from mpifl.wings.sites.consents import add_consent, consent_to, read_invitation, shown

    folder = site_folder("mpifl consent", "this site's key and its consents")
    invitation = read_invitation(link, coordinator)
    made = consent_to(invitation, folder, link, figures, questions, runs, singles=singles)
    for line in shown(invitation, made, folder):
        typer.echo(line)
    if not yes and not typer.confirm("Take part?"):
        typer.echo("nothing is written")
        raise typer.Exit(1)
    add_consent(folder, made)
    typer.echo(
        f"{folder / 'consent.toml'} has job {made.job[:8]}; take part by `mpifl join {link} --shards DIR`"
    )


def withdraw(
    link: _Link,
    yes: Annotated[bool, typer.Option("--yes", help="Leave without being asked.")] = False,
) -> None:
    """Leave a run over sites for good: delete what this site kept for it, and tell the coordinator.

    End `mpifl join` first. What left before stays in the model.
    """
    from mpifl.wings import sites
    from mpifl.wings.site import site_folder

    folder = site_folder("mpifl withdraw", "this site's key and its consents")
    if not yes and not typer.confirm("Leave the run for good? This site cannot come back to it."):
        typer.echo("nothing is changed")
        raise typer.Exit(1)
    for line in sites.withdraw(link, folder):
        typer.echo(line)


def submit_joining(
    link: Path, shards: Path | None, out: Path | None, wishes: Any, fits: bool, *, dry_run: bool
) -> None:
    """Join a run over sites as a SLURM job.

    Args:
        wishes: Nodes, ranks and the like.
        fits: Whether the options are those of a site that joins.

    Raises:
        InputError: options do not go together, this site may not take part, or SLURM refuses.
    """
    from mpifl.cli.slurm import submit_join
    from mpifl.wings import sites

    if not fits or shards is None or wishes.elsewhere or wishes.sweep or wishes.settings or wishes.at_once:
        what = "takes the folder with the invitation, --shards DIR, and no option of a training"
        raise InputError(f"--join: {what}; see `mpifl submit --help`")
    silos, journal = sites.joining(link, shards)
    name = out or Path(f"join-{link.resolve().name}")
    submit_join(link, shards, name, silos, journal, wishes=wishes, dry_run=dry_run)


def join(
    link: _Link,
    shards: _Shards,
    device: Annotated[str, typer.Option(help="As of a job: auto, cpu, gpu or cuda.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Of each rank.")] = 1,
) -> None:
    """Take part in a run over sites, on the ranks that mpirun starts. MPIFL_SITE names this site's folder.

    Exit code 0: the run has ended. 75: a signal came, and the same command goes on.
    """
    signals.install()
    with imports.gc_frozen():
        from mpifl.data.hdf5 import start_parser

        start_parser()
        from mpifl.wings import sites, wings_of
        from mpifl.wire.launching import world

    transport = world()
    ending.speak_if(lambda: transport.is_server)
    tuning.keep_all_memory()
    own: dict[str, Any] = {"device": device, "threads": threads}
    with tuning.subnormals_as_zero():
        ended = sites.join(link, shards, own, transport, wings_of)
    if not ended:
        typer.echo("stopped by a signal; the same command goes on")
        raise typer.Exit(ending.INTERRUPTED)
