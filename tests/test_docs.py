"""Every relative link of the documents leads to a file, and every anchor to a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tomli_w
import tomllib
from unit.builders import write_folder

from mpifl.run.job import Job, read_job
from mpifl.training.beforehand import plan_wings, validate_job
from mpifl.wings import wings_of

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    """Return a document without its fenced blocks and code."""
    return re.sub(r"`[^`\n]*`", "code", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(text: str) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    blocks = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ +(.+?) *$", blocks, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(path: Path, text: str) -> list[str]:
    """Find the links of a document that lead nowhere."""
    found = []
    for link in LINK.findall(prose(text)):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if re.match(r"\w+:", link):
            continue
        if name and not target.exists():
            found.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(target.read_text() if name else text):
            found.append(f"{link}: no such heading")
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path, path.read_text()) == []


def test_a_broken_link_is_found() -> None:
    text = (
        "[a](nowhere.md) [b](README.md#the-moon) [c](#here)\n# Here\n[d](README.md) [e](https://example.org)"
    )
    assert broken_links(ROOT / "some.md", text) == [
        "nowhere.md: no such file",
        "README.md#the-moon: no such heading",
    ]


NAMED = re.compile(r"[\w./-]+\.(?:toml|py|sh|sbatch|txt|json|csv|png)\b")


def unlinked(page: Path, text: str) -> list[str]:
    """Return the files of the repository that a page names in code, and has no link to."""
    linked = {(page.parent / link).resolve() for link in re.findall(r"\]\(([^)#\s]+)\)", text)}
    blocks = re.findall(r"^```.*?^```$|`[^`\n]+`", text, re.DOTALL | re.MULTILINE)
    names = sorted({name for block in blocks for name in NAMED.findall(block)})
    return [
        name
        for name in names
        for place in [next((p for p in (page.parent / name, ROOT / name) if p.is_file()), None)]
        if place is not None and place.resolve() not in linked
    ]


@pytest.mark.parametrize(
    "path",
    sorted([*ROOT.glob("docs/examples/*/*.md"), *ROOT.glob("docs/tutorial/*.md")]),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_file_that_a_page_to_learn_from_names_can_be_opened(path: Path) -> None:
    assert unlinked(path, path.read_text()) == []


def test_a_file_without_a_link_is_found() -> None:
    page = ROOT / "docs/examples/clinics/README.md"
    assert unlinked(page, "`job.toml` and [`run.sh`](run.sh)\n```\nbash scripts/demo.sh north.csv\n```") == [
        "job.toml",
        "scripts/demo.sh",
    ]


def test_every_file_of_an_example_stands_on_its_page() -> None:
    for page in ROOT.glob("docs/examples/*/README.md"):
        links = {link for link in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()) if "/" not in link}
        assert links == {path.name for path in page.parent.iterdir()} - {"README.md", "__pycache__"}, page


def test_the_page_on_loops_shows_the_example_as_it_is() -> None:
    _, start, rest = (ROOT / "scripts/examples/loader_loop.py").read_text().partition("class LoaderLoop")
    assert start + rest in (ROOT / "docs/howto/own-loop.md").read_text()


def test_each_line_that_starts_ranks_by_srun_says_by_which_protocol() -> None:
    """Without `--mpi` each rank may be alone, where the site's default is not one of the library's."""
    scripts = [*(ROOT / "jobs").rglob("*.sbatch"), *(ROOT / "docs").rglob("*.sbatch")]
    texts = {path: path.read_text() for path in [*DOCUMENTS, *scripts]}
    lines = [
        (str(path.relative_to(ROOT)), line)
        for path, text in texts.items()
        for line in text.splitlines()
        if re.search(r"\bsrun\b.*(?: -n ?\d|--ntasks|mpifl train)", line)
    ]
    assert len(lines) > 3
    assert [one for one in lines if "--mpi=" not in one[1]] == []


def test_commands_of_the_page_on_data_write_a_folder_each() -> None:
    page = (ROOT / "docs/howto/data.md").read_text()
    folders = re.findall(r"data_prep partition [^`\n]*--out (shards/[\w-]+)", page)
    assert len(folders) > 30
    assert sorted(folders) == sorted({*folders})


def test_slurm_is_asked_for_nodes_of_one_kind_where_bits_matter() -> None:
    """Kinds of processors compute other bits."""
    scripts = sorted((ROOT / "jobs/slurm").glob("*.sbatch"))
    assert len(scripts) > 1
    for path in [ROOT / "docs/howto/slurm.md", *scripts]:
        assert "--constraint" in path.read_text(), path


JOB_KEYS = {field.alias or name for name, field in Job.model_fields.items()}
PLAIN_JOB = {"name": "toy", "shards": "shards", "rounds": 2, "device": "cpu", "model": {"name": "logreg"}}


def job_tables(path: Path) -> list[dict]:
    """Return the blocks of a page that are tables of a job, but for those with code of the reader's own."""
    blocks = re.findall(r"^```toml\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    found = [tomllib.loads(block) for block in blocks]
    return [one for one in found if one and one.keys() <= JOB_KEYS and not re.search(r"\w:\w", str(one))]


PAGES_OF_JOBS = [path for path in DOCUMENTS if {"howto", "explanation"} & {*path.parts} and job_tables(path)]


@pytest.mark.parametrize("path", PAGES_OF_JOBS, ids=lambda path: path.stem)
def test_what_a_page_shows_of_a_job_is_taken_as_copied(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPIFL_SITE", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    write_folder(tmp_path / "shards", range(30, 50), test=20, silos_test=9, valid=9)
    for tables in job_tables(path):
        job_file = tmp_path / "job.toml"
        job_file.write_text(tomli_w.dumps(PLAIN_JOB | tables))
        job = read_job(job_file)
        if "model" not in tables:  # others are of images, texts or tables
            plan_wings(job, validate_job(job, str(job_file), wings_of), str(job_file), wings_of(job))
