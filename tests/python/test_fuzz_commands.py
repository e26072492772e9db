"""Does scripts/fuzz-commands see what goes wrong? It is given commands that go wrong on purpose."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BROKEN = """#!/bin/sh
case "$*" in
  "workloads --json") echo '{{"workloads": [{{"name": "gemm", "defaults": "m=512,n=512"}}]}}';;
  *--help) echo "  --level L2   the level";;
  "plan "*" -o "*plan.yaml) while [ "$1" != -o ]; do shift; done; echo "schema: 1" > "$2";;
  *) {action};;
esac
"""


@pytest.mark.parametrize("action, said", [
    ("kill -SEGV $$", "ended by SIGSEGV"),
    ("echo 'tilewright: internal error: x' >&2; exit 1", "internal error"),
    ("exit 7", "status 7"),
    ("exit 2", "status 2 without a reason"),
    ("printf 'tilewright: a\\nb\\n' >&2; exit 3", "a reason of more than one line"),
    ("echo 'tilewright: verification failed: C[1]' >&2; exit 3", "a wrong kernel"),
    ("echo '{{'", "no JSON"),
    ("while :; do :; done", "no end within"),
])
def test_what_goes_wrong_is_found(action, said, tmp_path):
    done = fuzz(action, tmp_path, "40" if said == "no JSON" else "1" if said.startswith("no end") else "5")
    assert done.returncode == 1, done.stdout + done.stderr
    assert said in done.stdout


def test_what_answers_is_not(tmp_path):
    done = fuzz("echo '{{}}'", tmp_path, "10")
    assert done.returncode == 0, done.stdout + done.stderr


def fuzz(action, folder, cases):
    command = folder / "tilewright"
    command.write_text(BROKEN.format(action=action.format()), encoding="utf-8")
    command.chmod(0o755)
    return subprocess.run([sys.executable, ROOT / "scripts" / "fuzz-commands", command, "--cases", cases, "--limit", "1",
                           "--found", folder / "found"], capture_output=True, text=True, timeout=300)
