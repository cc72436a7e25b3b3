"""What the peers' scripts share: the program that they are set against, and its random numbers."""

import json
import pathlib
import statistics
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_PROGRAM = ROOT / "build" / "release" / "longspan"


def bench(program, subject, **settings):
    """One `longspan bench` in a process of its own: its JSON."""
    words = [f"{key}={value}" for key, value in settings.items()]
    command = [str(program), "bench", subject, *words, "--format", "json"]
    if not pathlib.Path(program).exists():
        raise SystemExit(f"{program} is not there; build it first: cmake --preset release && cmake --build --preset release")
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return json.loads(result.stdout)


def available_gib():
    for line in open("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return float("inf")


def volunteer_for_oom():
    """If memory runs out, the kernel ends this process rather than another."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def summary(seconds):
    """A median with its spread, as longspan's JSON has them."""
    return {"seconds": statistics.median(seconds), "seconds_min": min(seconds), "seconds_max": max(seconds)}


def print_row(name, length, ours, theirs, peer):
    ratio = theirs["seconds"] / ours["seconds"]
    print(f"{name:<34} longspan {ours['seconds']:9.4f} s ({ours['seconds_min']:.4f} … {ours['seconds_max']:.4f})   "
          f"{peer} {theirs['seconds']:9.4f} s ({theirs['seconds_min']:.4f} … {theirs['seconds_max']:.4f})   "
          f"{ratio:6.2f} ×", flush=True)
    return {"name": name, "length": length, "peer": peer, "longspan": ours, "other": theirs, "ratio": ratio}


def finish(rows, path):
    """The rows as JSON where bench/all reads them."""
    if path:
        pathlib.Path(path).write_text(json.dumps(rows))


def normal(name, count):
    """core/random.h's CounterRandom(0, name).Normal(0 … count−1): Philox4x32-10 and Box–Muller."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = ((stream ^ byte) * 0x100000001B3) % 2**64
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    out = np.empty(count)
    step = 1 << 20
    for begin in range(0, count, step):
        index = np.arange(begin, min(count, begin + step), dtype=np.uint64)
        c0, c1 = index & low, index >> shift
        c2 = np.full_like(index, stream & 0xFFFFFFFF)
        c3 = np.full_like(index, stream >> 32)
        k0 = k1 = 0
        for _ in range(10):
            p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
            c0, c1, c2, c3 = ((p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & low,
                              (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & low)
            k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
        first, second = (c1 << shift) | c0, (c3 << shift) | c2
        radius = ((first >> np.uint64(11)) + np.uint64(1)).astype(np.float64) * 2.0**-53
        angle = (second >> np.uint64(11)).astype(np.float64) * 2.0**-53
        out[begin:begin + index.size] = np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
    return out
