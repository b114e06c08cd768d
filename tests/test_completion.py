"""`motley completion` and `motley man`: what shells and groff make of them. A shell is started once, with all questions."""

import shutil
import subprocess

import pytest


def said_by(program, flag, code):
    """Its lines; none where it is not installed."""
    if shutil.which(program) is None:
        return None
    done = subprocess.run([program, flag, code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def script(motley, tmp_path):
    def write(shell):
        path = tmp_path / f"_motley.{shell}"
        outcome = motley("completion", shell)
        assert outcome.code == 0
        path.write_text(outcome.stdout)
        return path

    return write


def test_bash_completes_verbs_and_flags(script, tmp_path):
    (tmp_path / "lab.toml").touch()
    questions = ["ex", "explain --what", "plan --time", "-q plan --", "--js", f"plan -C {tmp_path}/l"]
    ask = 'ask() { COMP_WORDS=(motley "$@"); COMP_CWORD=$#; _motley; echo "${COMPREPLY[*]}"; }; '
    said = said_by("bash", "-c", f"source {script('bash')}; {ask}" + "; ".join(f"ask {words}" for words in questions))
    verbs, what, time, flags, json, files = (set(line.split()) for line in said)
    assert (verbs, what, time, json) == ({"explain", "export-plan"}, {"--what-if"}, {"--time-limit"}, {"--json"})
    assert {"--json", "--quiet", "--global-batch"} <= flags and "--what-if" not in flags
    assert files == {f"{tmp_path}/lab.toml"}


def test_zsh_reads_it(script):
    path = script("zsh")
    assert "'*--what-if[" in path.read_text()
    said = said_by("zsh", "-fc", f"autoload -U compinit; compinit -D -u; source {path}; print $_comps[motley]; whence -w _motley")
    assert said is None or said == ["_motley", "_motley: function"]


def test_fish_completes_verbs_and_flags(script):
    path = script("fish")
    assert "complete -c motley -n '__fish_seen_subcommand_from explain' -l what-if -r" in path.read_text()
    said = said_by("fish", "-c", f'source {path}; complete -C "motley ex"; complete -C "motley explain --what"; complete -C "motley plan --time"')
    assert said is None or [line.split("\t")[0] for line in said] == ["explain", "export-plan", "--what-if", "--time-limit"]


def test_another_shell(motley):
    outcome = motley("completion", "csh")
    assert outcome.code == 2 and "found 'csh', wanted bash, zsh or fish" in outcome.stderr


def test_the_manual_page(motley):
    page = motley("man").stdout
    assert page.startswith(".TH MOTLEY 1")
    assert "\n\\fB\\-\\-what\\-if\\fR \\fIVALUE\\fR\n" in page and "\n.PP\n\\fIDevices that come and go\\fR\n" in page
    if shutil.which("groff") is not None:
        done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-P-cbou"], input=page, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and done.stderr == ""
        assert "--what-if VALUE" in done.stdout and "Devices that come and go" in done.stdout


def test_the_help_of_run_has_headings(motley):
    said = motley("run", "--help").stdout
    blocks = [block.strip("\n") for block in said.split("\n\n") if "\n  -" in block]
    headings = {block.splitlines()[0] for block in blocks}
    assert {"Planning:", "Data:", "Workers:", "Checkpoints:", "Devices that come and go:", "While it trains:"} <= headings
    assert max(block.count("\n  -") for block in blocks) <= 20
