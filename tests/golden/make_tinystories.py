"""Makes tinystories/{ids,packed}.jsonl and expected.json: what PyTorch says of a small, trained Llama in float64.

    python3 make_tinystories.py [MODEL_DIRECTORY]

MODEL_DIRECTORY (default: tinystories/ beside this file) holds config.json and model.safetensors of TinyStories-656K.
Needs torch. The Llama is written out below in float64 throughout, rotary phases included. With `transformers`
installed, its LlamaForCausalLM is asked for the same and the differences are printed: once as it is (its norms and
rotary tables are float32 whatever the model is), and once with those two places in float64.
"""

import json
import pathlib
import re
import struct
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent / "tinystories"
VOCAB_SAMPLES, ROW_SAMPLES, GRADIENT_SAMPLES = 24, 16, 48


def read_safetensors(path):
    """name -> float64 tensor, and the file's metadata (aliases of tied weights among it)."""
    data = path.read_bytes()
    (header_size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + header_size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", (name, entry)
        begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
        values = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        tensors[name] = values.reshape(entry["shape"]).double()
    return tensors, metadata


def rms_norm(x, weight, epsilon):
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight


def rotate(x, theta):
    """x (t, heads, D): pairs (i, i + D/2) turned by position / theta^(2i/D); positions start at 0."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * frequency
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def logits_of(weights, config, ids):
    """One document, (t) ids -> (t, V) logits."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config["hidden_size"] // heads
    epsilon, theta = config["rms_norm_eps"], config["rope_theta"]
    t = len(ids)
    causal = torch.ones(t, t, dtype=torch.bool).tril()
    embedding = weights["model.embed_tokens.weight"]
    x = embedding[ids]
    for layer in range(config["num_hidden_layers"]):
        w = lambda name: weights[f"model.layers.{layer}.{name}.weight"]
        normed = rms_norm(x, w("input_layernorm"), epsilon)
        q = rotate((normed @ w("self_attn.q_proj").T).reshape(t, heads, head_dim), theta)
        k = rotate((normed @ w("self_attn.k_proj").T).reshape(t, kv_heads, head_dim), theta)
        v = (normed @ w("self_attn.v_proj").T).reshape(t, kv_heads, head_dim)
        kv_of = torch.arange(heads) * kv_heads // heads
        scores = torch.einsum("qhd,khd->hqk", q, k[:, kv_of]) / head_dim**0.5
        weights_of_keys = scores.masked_fill(~causal, float("-inf")).softmax(-1)
        context = torch.einsum("hqk,khd->qhd", weights_of_keys, v[:, kv_of]).reshape(t, heads * head_dim)
        x = x + context @ w("self_attn.o_proj").T
        normed = rms_norm(x, w("post_attention_layernorm"), epsilon)
        gate, up = normed @ w("mlp.gate_proj").T, normed @ w("mlp.up_proj").T
        x = x + (torch.nn.functional.silu(gate) * up) @ w("mlp.down_proj").T
    return rms_norm(x, weights["model.norm.weight"], epsilon) @ embedding.T


def run(forward, parameters, documents):
    """Mean loss over all targets of the documents, their logits one after the other, and the gradients."""
    for parameter in parameters.values():
        parameter.grad = None
    logits = [forward(ids) for ids in documents]
    num_targets = sum(len(ids) - 1 for ids in documents)
    loss = sum(
        torch.nn.functional.cross_entropy(rows[:-1], ids[1:], reduction="sum")
        for rows, ids in zip(logits, documents)
        if len(ids) > 1
    )
    loss = loss / num_targets
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in parameters.items()}
    return loss.item(), torch.cat(logits).detach(), gradients, num_targets


def describe(loss, logits, gradients, num_targets, documents, gradient_samples=GRADIENT_SAMPLES):
    """What expected.json says of a case. Entries are taken at fixed strides over the flat tensor."""
    t, vocab = logits.shape
    rows = [i * (t - 1) // (ROW_SAMPLES - 1) for i in range(ROW_SAMPLES)]
    columns = [i * (vocab - 1) // (VOCAB_SAMPLES - 1) for i in range(VOCAB_SAMPLES)]
    described = {}
    for name, gradient in gradients.items():
        flat = gradient.flatten()
        stride = max(1, flat.numel() // gradient_samples) | 1  # odd, so that samples walk over the columns
        described[name] = {"norm": flat.norm().item(), "stride": stride, "entries": flat[::stride].tolist()}
    return {
        "document_lengths": [len(ids) for ids in documents],
        "num_targets": num_targets,
        "loss": loss,
        "grad_norm": torch.cat([g.flatten() for g in gradients.values()]).norm().item(),
        "logits": {"rows": rows, "columns": columns, "values": logits[rows][:, columns].flatten().tolist()},
        "logsumexp": logits.logsumexp(-1).tolist(),
        "gradients": described,
    }


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


def compare(label, other, ours, names):
    """names: our parameter name -> the other's."""
    gradients = max(relative(other[2][theirs], ours[2][name]) for name, theirs in names.items())
    print(
        f"  {label}: loss {abs(other[0] / ours[0] - 1):.2e}, logits {relative(other[1], ours[1]):.2e}, "
        f"worst gradient {gradients:.2e} (relative differences)"
    )


def transformers_llama(directory, weights):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(directory)
    config._attn_implementation = "sdpa"
    model = LlamaForCausalLM(config).double()
    state = {name: value.detach().clone() for name, value in weights.items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model


def in_float64(model, config):
    """The two places that transformers computes in float32 whatever the model's dtype."""
    half = model.config.hidden_size // model.config.num_attention_heads // 2

    def rotary(x, position_ids):
        frequency = config["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = position_ids[..., None].double() * frequency
        angle = torch.cat([angle, angle], dim=-1)
        return angle.cos(), angle.sin()

    model.model.rotary_emb.forward = rotary
    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = lambda x, m=module: rms_norm(x, m.weight, m.variance_epsilon)


def main():
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    config = json.loads((directory / "config.json").read_text())
    weights, aliases = read_safetensors(directory / "model.safetensors")
    for name, stored in aliases.items():
        if stored in weights:
            weights[name] = weights.pop(stored)
    for value in weights.values():
        value.requires_grad_(True)

    generator = torch.Generator().manual_seed(656)
    draw = lambda n: torch.randint(3, config["vocab_size"], (n,), generator=generator)
    cases = {"one_document": ("ids.jsonl", [draw(257)]),
             "packed": ("packed.jsonl", [draw(n) for n in (100, 37, 1, 64, 30)])}

    model = None
    try:
        model = transformers_llama(directory, weights)
    except ImportError:
        print("transformers is not installed: not cross-checked")

    expected = {"torch": torch.__version__.split("+")[0], "cases": {}}
    ours = {}
    for case, (file, documents) in cases.items():
        ours[case] = run(lambda ids: logits_of(weights, config, ids), weights, documents)
        expected["cases"][case] = {"ids_file": file, **describe(*ours[case], documents)}
        lines = (json.dumps({"input_ids": ids.tolist()}) for ids in documents)
        (HERE / file).write_text("".join(line + "\n" for line in lines))
        print(f"{case}: loss {ours[case][0]:.17g}, grad_norm {expected['cases'][case]['grad_norm']:.17g}")
    text = re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m.group().split()), json.dumps(expected, indent=1))
    (HERE / "expected.json").write_text(text + "\n")  # a list of numbers on one line

    if model is not None:
        names = {name: name for name in weights}
        for label, patch in (("transformers as it is", None), ("its float32 places in float64", in_float64)):
            if patch is not None:
                patch(model, config)
            for case, (_, documents) in cases.items():
                other = run(lambda ids: model(ids[None]).logits[0], dict(model.named_parameters()), documents)
                compare(f"{case}, {label}", other, ours[case], names)


if __name__ == "__main__":
    main()
