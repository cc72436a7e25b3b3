"""Checks that what `longspan train` saves loads in transformers and computes the same.

    python3 check_saved.py PROGRAM [MODEL_DIRECTORY …]

For each model (default: all of families/ beside this file) PROGRAM makes one step with a learning rate of 0 and saves
its checkpoint: once with the sequence's length, and once with more tokens than the model has positions, so that the
saved config.json gets those. transformers loads it and the source; no weight may be missing or unexpected, and the float32
logits of families/ids.jsonl must be the same bit for bit. Needs torch and transformers.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

FAMILIES = pathlib.Path(__file__).resolve().parent / "families"


def logits_of(directory, ids):
    model, report = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    problems = {what: names for what, names in report.items() if names}
    assert not problems, (directory, problems)
    with torch.no_grad():
        return model.eval()(ids[None]).logits


def train(program, model, runs, length):
    keys = {
        "model_path": model, "data_path": FAMILIES / "ids.jsonl", "max_target_length": length, "steps": 1,
        "learning_rate": 0, "dtype": "float32", "base_output_directory": runs, "run_name": f"{model.name}-{length}",
        "peak_tflops": 1,
    }
    command = [program, "train"] + [f"{key}={value}" for key, value in keys.items()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, " ".join(map(str, command)) + "\n" + done.stdout + done.stderr
    return runs / f"{model.name}-{length}" / "checkpoints" / "latest"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    models = [pathlib.Path(name) for name in sys.argv[2:]]
    models = models or sorted(path.parent for path in FAMILIES.glob("*/config.json"))
    ids = torch.tensor(json.loads((FAMILIES / "ids.jsonl").read_text())["input_ids"])
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    failures = 0
    with tempfile.TemporaryDirectory() as runs:
        for model in models:
            before, equal = logits_of(model, ids), []
            positions = AutoConfig.from_pretrained(model).max_position_embeddings
            for length in (len(ids), 2 * positions):
                saved = train(program, model, pathlib.Path(runs), length)
                assert AutoConfig.from_pretrained(saved).max_position_embeddings == max(length, positions), saved
                equal.append(torch.equal(before, logits_of(saved, ids)))
            failures += not all(equal)
            print(f"{model.name:18} {'equal bit for bit' if all(equal) else f'as it is, extended: {equal}'}")
    print(f"{len(models) - failures} of {len(models)} equal")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
