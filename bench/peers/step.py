#!/usr/bin/env python3
"""A whole training step of a Llama of about 100M parameters in PyTorch beside longspan's, in turn, in one run: the same
model (recipes/models/100m.json), one sequence of random tokens, bf16 compute with f32 master weights, AdamW with
clipping. PyTorch gets its best: the fused attention kernel, its fused RMSNorm and AdamW, and the loss in chunks of
rows, forward and backward at once, so that neither side ever holds T × V logits or computes anything twice.

    python3 -m venv venv && venv/bin/pip install -r bench/peers/requirements.txt
    venv/bin/python bench/peers/step.py --lengths 4096,16384
"""

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import common

CHUNK = 1024  # rows of logits at a time


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.width = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        hidden, inner = c["hidden_size"], c["intermediate_size"]
        self.norm1 = nn.RMSNorm(hidden, eps=c["rms_norm_eps"])
        self.norm2 = nn.RMSNorm(hidden, eps=c["rms_norm_eps"])
        self.query = nn.Linear(hidden, self.heads * self.width, bias=False)
        self.key = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
        self.value = nn.Linear(hidden, self.kv_heads * self.width, bias=False)
        self.output = nn.Linear(self.heads * self.width, hidden, bias=False)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        y = self.norm1(x)
        q = rotate(self.query(y).view(-1, self.heads, self.width).transpose(0, 1), cos, sin)
        k = rotate(self.key(y).view(-1, self.kv_heads, self.width).transpose(0, 1), cos, sin)
        v = self.value(y).view(-1, self.kv_heads, self.width).transpose(0, 1)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
        x = x + self.output(out.transpose(0, 1).reshape(x.shape[0], -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Tied embedding; everything in bf16 but the logits' softmax."""

    def __init__(self, c, length):
        super().__init__()
        self.embedding = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["num_hidden_layers"]))
        self.norm = nn.RMSNorm(c["hidden_size"], eps=c["rms_norm_eps"])
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=c["initializer_range"])
        self.bfloat16()
        frequencies = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2).double() / c["head_dim"])
        angles = torch.arange(length).double()[:, None] * frequencies
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()

    def loss_and_gradients(self, tokens, targets):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x = self.norm(x)
        hidden = x.detach().requires_grad_()
        total = 0.0
        for begin in range(0, len(tokens), CHUNK):
            logits = F.linear(hidden[begin:begin + CHUNK], self.embedding.weight).float()
            loss = F.cross_entropy(logits, targets[begin:begin + CHUNK], reduction="sum") / len(tokens)
            loss.backward()
            total += loss.item()
        x.backward(hidden.grad)
        return total


class Trainer:
    def __init__(self, config, length, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.model = Llama(config, length)
        self.parameters = list(self.model.parameters())
        self.master = [nn.Parameter(p.detach().float()) for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.master, lr=3e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        self.text = torch.randint(config["vocab_size"], (length + 1,))

    def step(self):
        """Seconds of one step."""
        start = time.perf_counter()
        for parameter in self.parameters:
            parameter.grad = None
        self.model.loss_and_gradients(self.text[:-1], self.text[1:])
        for parameter, master in zip(self.parameters, self.master):
            master.grad = parameter.grad.float()
        nn.utils.clip_grad_norm_(self.master, 1.0)
        self.optimizer.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.master):
                parameter.copy_(master)
        return time.perf_counter() - start


def peak_gib():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    return float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.DEFAULT_PROGRAM, help="longspan; default build/release/longspan")
    parser.add_argument("--lengths", default="4096,16384", help="tokens, with commas")
    parser.add_argument("--layers", type=int, default=0, help="a cut of the model; default: whole")
    parser.add_argument("--rounds", type=int, default=3, help="steps of each, in turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="a file for the rows")
    arguments = parser.parse_args()
    common.volunteer_for_oom()

    config = json.loads((common.ROOT / "recipes" / "models" / "100m.json").read_text())
    config["num_hidden_layers"] = layers = arguments.layers or config["num_hidden_layers"]
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads; {layers} layers, one sequence, whole step", flush=True)
    rows = []
    for length in map(int, arguments.lengths.split(",")):
        # Measured: 12 layers keep about 0.45 MiB a token; weights and optimizer take 2 GiB, logits the rest.
        needed = 2.5 + layers / 12 * length * 0.6 / 1024
        if needed > common.available_gib() - 3:
            print(f"step T {length}: PyTorch would need about {needed:.0f} GiB and {common.available_gib():.0f} GiB "
                  "are free; skipped", flush=True)
            continue
        trainer = Trainer(config, length, arguments.threads)
        # The first step touches its memory for the first time. At long sequences that is a small part of it, and
        # neither side gets a step to warm up.
        warm_up = length < 16384
        if warm_up:
            trainer.step()
        seconds = {"ours": [], "theirs": []}
        for _ in range(arguments.rounds):
            case = common.bench(arguments.program, "step", max_target_length=length, layers=layers,
                                runs=2 if warm_up else 1, threads=arguments.threads)["cases"][0]
            seconds["ours"].append(case["seconds_min"])
            seconds["theirs"].append(trainer.step())
        rows.append(common.print_row(f"step T {length}, {layers} layers", length, common.summary(seconds["ours"]),
                                     common.summary(seconds["theirs"]), "PyTorch"))
        print(f"  PyTorch's process at most {peak_gib():.1f} GiB; longspan {case['memory_gib_a_rank']:.1f} GiB", flush=True)
        del trainer
    common.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
