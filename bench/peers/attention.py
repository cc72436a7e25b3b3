#!/usr/bin/env python3
"""Attention of PyTorch and JAX beside longspan's on the same work: causal, grouped query heads, bf16, forward and
backward, in turn, in one run; and how exact the gradients of PyTorch are on the inputs of `bench attention
pass=accuracy`.

    python3 -m venv venv && venv/bin/pip install -r bench/peers/requirements.txt
    venv/bin/python bench/peers/attention.py --lengths 512,2048,8192
"""

import argparse
import os
import time

import numpy as np

import common

QUERY_HEADS, KV_HEADS, HEAD_DIM = 6, 2, 128  # of the model of 100M parameters


def torch_attention(length, threads):
    """A function that does one forward and one backward pass and returns its seconds."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(0)

    def tensor(heads):
        return torch.randn(1, heads, length, HEAD_DIM, generator=generator).bfloat16()

    q, k, v = (tensor(heads).requires_grad_() for heads in (QUERY_HEADS, KV_HEADS, KV_HEADS))
    dout = tensor(QUERY_HEADS)

    def run():
        q.grad = k.grad = v.grad = None
        start = time.perf_counter()
        # The fused kernel alone: the plain one would make T × T scores.
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        out.backward(dout)
        return time.perf_counter() - start

    return run


def jax_attention(length):
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    shapes = [(1, length, heads, HEAD_DIM) for heads in (QUERY_HEADS, KV_HEADS, KV_HEADS, QUERY_HEADS)]
    q, k, v, dout = (jax.random.normal(key, shape).astype(jnp.bfloat16) for key, shape in zip(keys, shapes))

    @jax.jit
    def step(q, k, v, dout):
        out, backward = jax.vjp(lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True), q, k, v)
        return out, backward(dout)

    def run():
        start = time.perf_counter()
        jax.block_until_ready(step(q, k, v, dout))
        return time.perf_counter() - start

    return run


def longspan_attention(program, length, threads):
    """Seconds of one forward and one backward pass after one to warm up, in a new process."""
    report = common.bench(program, "attention", max_target_length=length, head_dim=HEAD_DIM, dtype="bfloat16",
                          query_heads=QUERY_HEADS, kv_heads=KV_HEADS, threads=threads, runs=1)
    return sum(case["seconds"] for case in report["cases"] if case["name"] == "causal")


def compare(peer, theirs, program, length, threads, rounds):
    theirs()  # to warm up, as ours does
    seconds = {"ours": [], "theirs": []}
    for _ in range(rounds):
        seconds["ours"].append(longspan_attention(program, length, threads))
        seconds["theirs"].append(theirs())
    return common.print_row(f"attention T {length}", length, common.summary(seconds["ours"]),
                            common.summary(seconds["theirs"]), peer)


def torch_gradient_error(case):
    """‖dQ − reference‖ / ‖reference‖ of PyTorch over the rows, and on the inputs, of one of longspan's accuracy
    cases, the reference in float64 with its own output; and the checksum of the inputs."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    length, width = case["max_target_length"], case["head_dim"]
    heads, kv_heads = case["query_heads"], case["kv_heads"]

    def tensor(name, count):
        values = torch.from_numpy(common.normal("accuracy." + name, length * count * width).astype(np.float32))
        return values.view(1, length, count, width).bfloat16()

    q, k, v, dout = (tensor(name, n) for name, n in
                     (("q", heads), ("k", kv_heads), ("v", kv_heads), ("dout", heads)))
    k = (k.float() + case["key_offset"]).bfloat16()
    if case["values_follow_keys"]:
        v = (v.float() + k.float()).bfloat16()
    checksum = sum(float(x.double().sum()) for x in (q, k, v, dout))

    leaves = [x.transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    out.backward(dout.transpose(1, 2))
    dq = leaves[0].grad.transpose(1, 2)[0].double().numpy()

    q, k, v, dout = (x[0].double().numpy() for x in (q, k, v, dout))
    scale = 1 / np.sqrt(width)
    difference = norm = 0.0
    for i in range(case["rows"]):
        row = (2 * i + 1) * length // (2 * case["rows"])
        for head in range(heads):
            kv = head // (heads // kv_heads)
            keys, values = k[:row + 1, kv], v[:row + 1, kv]
            scores = scale * (keys @ q[row, head])
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            delta = (weights @ values) @ dout[row, head]
            reference = scale * ((weights * (values @ dout[row, head] - delta)) @ keys)
            difference += np.sum((dq[row, head] - reference)**2)
            norm += np.sum(reference**2)
    return np.sqrt(difference / norm), checksum


def compare_accuracy(program):
    rows = []
    for case in common.bench(program, "attention", **{"pass": "accuracy"})["accuracy"]:
        if not case["true_output"]:
            continue
        error, checksum = torch_gradient_error(case)
        if abs(checksum - case["checksum"]) > 1e-6 * case["max_target_length"]:
            raise SystemExit(f"{case['name']}: the inputs differ, {checksum} and {case['checksum']}")
        print(f"dQ, {case['name']}, T {case['max_target_length']}: longspan {case['dq']:.2e}, PyTorch {error:.2e}",
              flush=True)
        rows.append({"name": case["name"], "peer": "PyTorch", "longspan_dq": case["dq"], "other_dq": error})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=common.DEFAULT_PROGRAM, help="longspan; default build/release/longspan")
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192,16384,32768", help="tokens, with commas")
    parser.add_argument("--jax-lengths", default="2048,8192", help="the same for JAX, which makes T × T scores")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, in turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--no-accuracy", action="store_true")
    parser.add_argument("--json", help="a file for the rows")
    arguments = parser.parse_args()
    common.volunteer_for_oom()

    rows = []
    import torch
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads; heads {QUERY_HEADS}/{KV_HEADS} of {HEAD_DIM}, "
          "causal, bf16, forward + backward", flush=True)
    for length in map(int, arguments.lengths.split(",")):
        rows.append(compare("PyTorch", torch_attention(length, arguments.threads),
                            arguments.program, length, arguments.threads, arguments.rounds))
    try:
        import jax
    except ImportError:
        jax = None
        print("JAX is not installed", flush=True)
    if jax and arguments.jax_lengths:
        print(f"JAX {jax.__version__}, its own threads on {os.cpu_count()} cores", flush=True)
        for length in map(int, arguments.jax_lengths.split(",")):
            needed = 6 * 4 * QUERY_HEADS * length**2 / 2**30  # scores, weights, their gradients, and copies
            if needed > common.available_gib() - 2:
                print(f"attention T {length}: JAX would need about {needed:.0f} GiB; skipped", flush=True)
                continue
            rows.append(compare("JAX", jax_attention(length), arguments.program, length,
                                arguments.threads, min(3, arguments.rounds)))
    if not arguments.no_accuracy:
        rows += compare_accuracy(arguments.program)
    common.finish(rows, arguments.json)


if __name__ == "__main__":
    main()
