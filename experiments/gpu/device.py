"""What the scripts in this folder share: the GPU by nvidia-smi, how a recording begins, and programs that end in time."""
import datetime
import math
import os
import signal
import subprocess
import sys


def _nvidia_smi(fields):
    return subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
                          capture_output=True, text=True, check=True).stdout.splitlines()


def architecture():
    """As the command chooses it: only 9.0 has instructions of its own that are emitted for."""
    try:
        said = _nvidia_smi("compute_cap")
    except (OSError, subprocess.CalledProcessError):
        said = []
    return "sm_80" if said and said[0] != "9.0" else "sm_90a"


def machine():
    try:
        name, driver, memory, clock = _nvidia_smi(
            "name,driver_version,memory.total,clocks.max.sm")[0].split(", ")
        return {"name": name, "driver": driver, "memory": memory, "most_clock": clock}
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError) as why:
        return {"reason": f"nvidia-smi says nothing: {why}"}


def plain(word):
    """A word of a command line without the folders of this machine."""
    return os.path.basename(word) if os.path.isabs(word) else word


def recording(**more):
    """What a recording begins with."""
    return {"schema": 1, "source": "measured", "command": " ".join(map(plain, sys.argv)), "device": machine(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **more}


def us(seconds):
    return f"{seconds * 1e6:.1f}" if seconds else "-"


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def bounded(command, timeout):
    """(output, errors, status) of a program; ended with all that it started where it takes longer, which
    is a TimeoutExpired."""
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        out, errors = started.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        started.communicate()
        raise
    return out, errors, started.returncode
