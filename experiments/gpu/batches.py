"""Batches of the command, for the scripts in this folder."""
import json
import os
import subprocess
import sys

from device import bounded


def ncu_version():
    for ncu in ("ncu", "/usr/local/cuda/bin/ncu"):
        try:
            said = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=True).stdout
            return said.strip().splitlines()[-1]
        except (OSError, subprocess.CalledProcessError, IndexError):
            continue
    return None


class Command:
    """Batches of the command, and their answers. `options` has tilewright, machine, arch and cache;
    `script` is whose name errors bear."""

    def __init__(self, script, options, folder):
        self.script, self.options, self.folder = script, options, folder
        self.calls, self.said = 0, {}
        self.cache = options.cache or str(folder / "cubins")
        os.makedirs(self.cache, exist_ok=True)

    def words(self, verb, requests, more):
        self.calls += 1
        batch = self.folder / f"batch{self.calls}.jsonl"
        out = self.folder / f"answers{self.calls}.jsonl"
        batch.write_text("".join(json.dumps(r) + "\n" for r in requests))
        out.write_text("")
        return [self.options.tilewright, *verb, "--target", "cuda", "-m", self.options.machine, "--threads",
                str(os.cpu_count() or 1), "--cache", self.cache, "--arch", self.options.arch, "--batch",
                str(batch), "-o", str(out), "--json", *more], out

    def answers(self, verb, requests, timeout, more=()):
        """In order; what is missing says why."""
        words, out = self.words(verb, requests, more)
        try:
            said, errors, status = bounded(words, timeout)
            if status == 2:
                sys.exit(f"{self.script}: {errors.strip()}")
            self.said = json.loads(said) if said.startswith("{") else {}
            why = self.said.get("reason", f"the process ended: {errors.strip()[-300:]} (status {status})")
        except subprocess.TimeoutExpired:
            why = f"did not end within {timeout:.0f} s"
        got = [json.loads(line) for line in out.read_text().splitlines()]
        return got + [{"name": r["name"], "reason": why} for r in requests[len(got):]]
