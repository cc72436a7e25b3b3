"""Makes families/: a tiny random model of every family, and what transformers says of it in float64.

    python3 make_families.py

Needs torch, transformers and safetensors. Each model is a directory with config.json, model.safetensors (values that
bfloat16 holds) and expected.json (loss, logits and gradients of ids.jsonl and packed.jsonl beside it, as in
tinystories/). The models are transformers' own, in float64 throughout: norms, rotary tables and softmax, which
transformers computes in float32 whatever the model's dtype, are replaced; the difference from transformers as it is
gets printed.
"""

import json
import math
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

from make_tinystories import describe, relative, run

HERE = pathlib.Path(__file__).resolve().parent / "families"
SEED = 5
DOCUMENTS = {"one_document": ("ids.jsonl", (257,)), "packed": ("packed.jsonl", (120, 37, 60))}
VOCABULARY = 96

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "use_cache": True,
}

# What each config.json says beyond SIZES. "torch_dtype" marks the older spelling, "dtype" the newer; `rewritten`
# configs are as transformers saves them, the others as published models have them.
GEMMA = {"query_pre_attn_scalar": 24, "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 40}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5}
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu"}
QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu", "head_dim": 16}
PHI3 = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5}
GEMMA2 = {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], **GEMMA}
GEMMA3 = {"model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], **GEMMA}
MODELS = {
    "llama": {**LLAMA, "num_key_value_heads": 4, "rope_theta": 10000.0, "rope_scaling": None,
              "tie_word_embeddings": False, "torch_dtype": "float32"},
    "llama_biases": {**LLAMA, "attention_bias": True, "mlp_bias": True, "head_dim": 16, "rope_theta": 5000.0,
                     "hidden_act": "gelu_pytorch_tanh", "rewritten": True, "dtype": "bfloat16"},
    "llama_llama3": {**LLAMA, "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
                     "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 64}},
    "llama_linear": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}, "torch_dtype": "bfloat16"},
    "llama_longrope": {**LLAMA, "head_dim": 16, "torch_dtype": "bfloat16", "max_position_embeddings": 400,
                       "rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 100,
                                        "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6],
                                        "long_factor": [1.0, 1.2, 1.6, 2.2, 3.0, 3.6, 4.0, 4.5]}},
    "mistral": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_act": "silu",
                "sliding_window": None, "head_dim": 16, "rope_theta": 1000000.0, "rms_norm_eps": 1e-5,
                "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
    "mistral_window": {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "hidden_act": "silu",
                       "sliding_window": 24, "rope_theta": 10000.0, "rewritten": True, "dtype": "float32"},
    "qwen2": {**QWEN2, "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": 32,
              "max_window_layers": 1, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16"},
    "qwen2_window": {**QWEN2, "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 20,
                     "max_window_layers": 2, "rope_theta": 10000.0, "rewritten": True, "dtype": "bfloat16"},
    "qwen3": {**QWEN3, "attention_bias": False, "tie_word_embeddings": False, "rewritten": True, "dtype": "bfloat16",
              "rope_theta": 1000000.0},
    "qwen3_yarn": {**QWEN3, "attention_bias": True, "tie_word_embeddings": True, "rope_theta": 10000.0,
                   "sliding_window": None, "use_sliding_window": False, "max_window_layers": 2,
                   "torch_dtype": "bfloat16",
                   "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}},
    "qwen3_yarn_tuned": {**QWEN3, "rewritten": True, "dtype": "bfloat16",
                         "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
                                             "original_max_position_embeddings": 50, "beta_fast": 6.0,
                                             "beta_slow": 0.5, "mscale": 2.0, "mscale_all_dim": 0.5,
                                             "truncate": False}},
    "gemma2": {**GEMMA2, "num_hidden_layers": 4, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0,
               "hidden_act": "gelu_pytorch_tanh", "attention_bias": False, "rope_theta": 10000.0,
               "torch_dtype": "bfloat16"},
    "gemma2_new": {**GEMMA2, "attention_bias": True, "attn_logit_softcapping": None, "final_logit_softcapping": 3.0,
                   "tie_word_embeddings": False, "rewritten": True, "dtype": "bfloat16", "rope_theta": 10000.0},
    "gemma3": {**GEMMA3, "num_hidden_layers": 6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
               "sliding_window_pattern": 6, "attn_logit_softcapping": None, "final_logit_softcapping": None,
               "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "torch_dtype": "bfloat16"},
    "gemma3_new": {**GEMMA3, "num_hidden_layers": 3, "final_logit_softcapping": 4.0, "rewritten": True,
                   "dtype": "bfloat16",
                   "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                   "rope_parameters": {
                       "full_attention": {"rope_type": "yarn", "rope_theta": 100000.0, "factor": 4.0,
                                          "original_max_position_embeddings": 64},
                       "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}}},
    "phi3": {**PHI3, "sliding_window": 60, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
             "original_max_position_embeddings": 512, "tie_word_embeddings": False, "torch_dtype": "bfloat16"},
    "phi3_partial": {**PHI3, "num_key_value_heads": 4, "partial_rotary_factor": 0.75, "rewritten": True,
                     "dtype": "bfloat16", "tie_word_embeddings": True},
    "phi3_longrope": {**PHI3, "max_position_embeddings": 512, "original_max_position_embeddings": 150,
                      "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.1, 1.3, 1.5],
                                       "long_factor": [1.0, 2.0, 3.0, 4.0]},
                      "sliding_window": None, "torch_dtype": "bfloat16"},
}


def rms_norm(module):
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    offset = 1 if "Gemma" in type(module).__name__ else 0
    return lambda x: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * (offset + module.weight)


def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, softcap=None, **kwargs):
    groups = module.num_key_value_groups
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    weights = (scores + attention_mask).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def frequencies(rope, dim, long):
    """Of transformers' modeling_rope_utils.py, in float64."""
    i = torch.arange(dim // 2, dtype=torch.float64)
    plain = rope["rope_theta"] ** (-2 * i / dim)
    kind = rope["rope_type"]
    if kind == "default":
        return plain
    if kind == "linear":
        return plain / rope["factor"]
    original = rope["original_max_position_embeddings"]
    if kind == "longrope":
        return plain / torch.tensor(rope["long_factor" if long else "short_factor"], dtype=torch.float64)
    turns = original * plain / (2 * math.pi)
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clamp(0, 1)
    else:
        assert kind == "yarn", kind
        edges = [
            dim * math.log(original / (rope.get(name, default) * 2 * math.pi)) / (2 * math.log(rope["rope_theta"]))
            for name, default in (("beta_fast", 32), ("beta_slow", 1))
        ]
        if rope.get("truncate", True):
            edges = [math.floor(edges[0]), math.ceil(edges[1])]
        low, high = max(edges[0], 0), min(edges[1], dim - 1)
        kept = 1 - ((i - low) / (high - low)).clamp(0, 1)
    return kept * plain + (1 - kept) * plain / rope["factor"]


def rotary(module, longest):
    """longest(): tokens of the longest document in the sequence. Checks our frequencies against transformers'."""
    config = module.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    def forward(x, position_ids, layer_type=None):
        nested = layer_type is not None
        rope = config.rope_parameters[layer_type] if nested else config.rope_parameters
        dim = int(head_dim * rope.get("partial_rotary_factor", 1.0))
        theirs = getattr(module, f"{layer_type}_original_inv_freq" if nested else "original_inv_freq")
        assert relative(theirs.double(), frequencies(rope, dim, long=False)) < 3e-7, rope
        long = longest() > rope.get("original_max_position_embeddings", math.inf)
        angle = position_ids[..., None].double() * frequencies(rope, dim, long)
        angle = torch.cat([angle, angle], dim=-1)
        factor = getattr(module, f"{layer_type}_attention_scaling" if nested else "attention_scaling")
        return angle.cos() * factor, angle.sin() * factor

    return forward


def in_float64(model, longest):
    """Replaces what transformers computes in float32 whatever the model's dtype, but for the softmax."""
    for module in model.modules():
        name = type(module).__name__
        if name.endswith("RMSNorm"):
            module.forward = rms_norm(module)
        elif name.endswith("RotaryEmbedding"):
            module.forward = rotary(module, longest)
        elif name.endswith("ScaledWordEmbedding"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float64)


def initialise(model, generator):
    """Values that make every parameter count: scores of a few units, gains and biases far from 1 and 0."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                values = values * 0.3 + (0 if "gemma" in model.config.model_type else 1)
            elif parameter.dim() == 1:
                values = values * 0.5
            elif "embed_tokens" in name:
                values = values * (0.3 if "gemma" in model.config.model_type else 1.0)
            else:
                values = values * 1.5 / math.sqrt(parameter.shape[1])
            parameter.copy_(values.bfloat16())


def write_config(directory, settings):
    settings = {**SIZES, **settings}
    rewritten = settings.pop("rewritten", False)
    text = json.dumps(settings, indent=2) + "\n"
    (directory / "config.json").write_text(text)
    if rewritten:
        AutoConfig.from_pretrained(directory).save_pretrained(directory)


def rounded(x):
    """Ten digits are far below any tolerance of float32, and keep the files small."""
    if isinstance(x, float):
        return float(f"{x:.10g}")
    if isinstance(x, dict):
        return {key: rounded(value) for key, value in x.items()}
    return [rounded(value) for value in x] if isinstance(x, list) else x


def make(name, settings, documents):
    directory = HERE / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    write_config(directory, settings)
    config = AutoConfig.from_pretrained(directory, attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    initialise(model, torch.Generator().manual_seed(SEED))
    dtype = getattr(torch, settings.get("dtype", settings.get("torch_dtype")))
    tied = model.config.tie_word_embeddings
    state = {key: value.to(dtype).contiguous() for key, value in model.state_dict().items()}
    if tied:
        del state["lm_head.weight"]
    save_file(state, directory / "model.safetensors", metadata={"format": "pt"})

    forward = lambda ids: model(ids[None]).logits[0]
    parameters = dict(model.named_parameters())
    as_it_is = {case: run(forward, parameters, ids) for case, ids in documents.items()}
    model.double()
    longest = 0
    in_float64(model, lambda: longest)
    modeling = sys.modules[type(model).__module__]
    eager, modeling.eager_attention_forward = modeling.eager_attention_forward, attention
    expected = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "cases": {}}
    for case, ids in documents.items():
        longest = max(len(document) for document in ids)
        result = run(forward, parameters, ids)
        assert all(g.norm() > 1e-6 for g in result[2].values()), (name, case)
        expected["cases"][case] = {"ids_file": DOCUMENTS[case][0], **rounded(describe(*result, ids, gradient_samples=20))}
        logits = relative(as_it_is[case][1].double(), result[1])
        gradient = max(relative(as_it_is[case][2][key].double(), result[2][key]) for key in result[2])
        print(f"{name:18} {case:13} loss {result[0]:.6f}, transformers in float32: loss "
              f"{abs(as_it_is[case][0] / result[0] - 1):.1e}, logits {logits:.1e}, worst gradient {gradient:.1e}")
    modeling.eager_attention_forward = eager
    (directory / "expected.json").write_text(json.dumps(expected) + "\n")


def main():
    HERE.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(SEED)
    documents = {}
    for case, (file, lengths) in DOCUMENTS.items():
        documents[case] = [torch.randint(3, VOCABULARY, (n,), generator=generator) for n in lengths]
        lines = (json.dumps({"input_ids": ids.tolist()}) for ids in documents[case])
        (HERE / file).write_text("".join(line + "\n" for line in lines))
    for name, settings in MODELS.items():
        make(name, settings, documents)


if __name__ == "__main__":
    main()
