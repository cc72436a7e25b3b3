"""TensorBoard and longspan's event files (pip install tensorboard).

    event_files.py make          writes events.tfevents, which tests/unit/train/event_file_test.cc writes too
    event_files.py check RUN     reads the event files of a run directory as TensorBoard does, and compares
                                 every scalar with its metrics.jsonl
"""

import json
import math
import pathlib
import sys

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

NAMES = {
    "learning/loss": "loss",
    "learning/raw_grad_norm": "grad_norm",
    "learning/current_learning_rate": "learning_rate",
    "perf/step_time_seconds": "step_seconds",
    "perf/per_device_tflops_per_sec": "tflops_per_second",
    "perf/per_device_tokens_per_sec": "tokens_per_second",
    "perf/mfu": "mfu",
    "eval/avg_loss": "eval_loss",
}


def make():
    version = event_pb2.Event(wall_time=1700000000.25, file_version="brain.Event:2")
    start = event_pb2.Event(wall_time=1700000000.5, step=301)
    start.session_log.status = event_pb2.SessionLog.START
    events = [version, start]
    for step, loss in ((301, 2.5), (1 << 40, 1e-30)):
        event = event_pb2.Event(wall_time=1700000001.125, step=step)
        for tag, value in (("learning/loss", loss), ("perf/mfu", 0.0)):
            event.summary.value.add(tag=tag, simple_value=value)
        events.append(event)
    with open(pathlib.Path(__file__).parent / "events.tfevents", "wb") as file:
        writer = RecordWriter(file)
        for event in events:
            writer.write(event.SerializeToString(deterministic=True))


def check(run):
    with open(f"{run}/metrics.jsonl", encoding="utf8") as lines:
        metrics = [json.loads(line) for line in lines]
    reader = EventAccumulator(f"{run}/tensorboard", size_guidance={"scalars": 0})
    reader.Reload()
    tags = reader.Tags()["scalars"]
    num_values = 0
    for tag, name in NAMES.items():
        wanted = [(row["step"], row[name]) for row in metrics if row.get(name) is not None]
        got = [(event.step, event.value) for event in reader.Scalars(tag)] if tag in tags else []
        same = len(got) == len(wanted) and all(
            step == other and math.isclose(value, numpy.float32(wanted_value), rel_tol=1e-7)
            for (step, value), (other, wanted_value) in zip(got, wanted))
        if not same:
            sys.exit(f"{tag}: TensorBoard reads {got}, metrics.jsonl has {wanted}")
        num_values += len(got)
    unknown = set(tags) - set(NAMES) - {"learning/grad_norm"}
    if unknown:
        sys.exit(f"unknown tags {unknown}")
    print(f"{len(metrics)} steps, {num_values} values: as in metrics.jsonl")


if sys.argv[1:2] == ["make"]:
    make()
elif sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
    check(sys.argv[2])
else:
    sys.exit(__doc__)
