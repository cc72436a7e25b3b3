"""Compares longspan's tokenizers with the libraries they follow, on random Unicode strings.

    ninja -C build/dev tokenizer_probe
    python3 compare_tokenizers.py PROBE DATA [--count 10000] [--only NAME] [--files FILE ...]

PROBE is the program tokenizer_probe, DATA a directory with tokenizers/ and tinystories-656k/ (tests/CMakeLists.txt says
where the tests look for it). Needs tokenizers, tiktoken and sentencepiece. Each tokenizer gets `count` strings of its own,
once with special tokens as text and once as themselves; ids must be equal, and the decoded text too wherever the ids
spell one. --files compares the ids of whole files instead. The last line is the number of differences.

The strings hold what Python's unicodedata knows, without what `tokenizers` normalizes otherwise since its tables are
older: characters younger than a library's tables are cut and normalized differently by every pair of libraries.
"""

import argparse
import base64
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import sentencepiece
import tiktoken
import tiktoken_ext.openai_public
from tokenizers import Tokenizer, normalizers

WORDS = """the The THE don't DON'T we'll I'M they've 'sup ’s don’t l'été café naïve über straße ſ K ı İ ﬁ ﬆ Ǆ ① Ⅻ ² ½ ٣ ४२
שלום नमस्ते مرحبا 中文 かな カナ 한국어 ไทย မြန်မာ 🦙 👩‍👩‍👧 🇰🇷 é e\u0301 ä\u0323\u0301 가 \u1100\u1161\u11a8 x‿y a_b a▁b ▁ ▁▁ <unk> <0x41> \ufeff
https://example.com/path?x=1 foo@example.com {[(<"'‘’“”…。 !!! ??? ... --- === \\n /// ""/ http www .com 3.14 1,000 1000000 007 0x1F
int main() { return; } self.x = [1] if(a&&b) \u0300\u0301 \u0345\u0300 ｱｲｳ １２３ Ａ""".split()
SPACES = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\r", " \n", "\n ", "\u00a0", "\u3000", "\u2028",
          "\u0085", "\u180e", "\u200b", "\u200d", "\x0b", "\x0c", "\x1c", "\x00", "\u1680", "\u202f"]


def assigned():
    """Code points that have a meaning, by block: a block is drawn first, so that rare scripts come up."""
    theirs = normalizers.NFKD()
    known, young = [], set()
    for character in map(chr, range(0x110000)):
        if unicodedata.category(character) not in ("Cn", "Cs", "Co"):
            text = f"a{character}\u0334"  # is it decomposed, and is it a mark?
            if theirs.normalize_str(text) == unicodedata.normalize("NFKD", text):
                known.append(character)
            else:
                young.update(unicodedata.normalize("NFKD", character))  # which compose to it
    blocks = {}
    for character in known:
        if ord(character) < 0x80 or character not in young:
            blocks.setdefault(ord(character) >> 7, []).append(character)
    return list(blocks.values())


def random_text(rng, blocks, extra):
    parts = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.random()
        if kind < 0.40:
            parts.append(rng.choice(WORDS))
        elif kind < 0.55:
            parts.append("".join(rng.choice(rng.choice(blocks)) for _ in range(rng.randrange(1, 6))))
        elif kind < 0.65:
            block = rng.choice(blocks)
            parts.append("".join(rng.choice(block) for _ in range(rng.randrange(1, 12))))
        elif kind < 0.75:
            parts.append("".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 10))))
        elif kind < 0.80:
            parts.append(rng.choice(["a", "ab", " ", "\n", "é", "0", "中", "!", "\u0301"]) * rng.randrange(2, 60))
        elif kind < 0.85 and extra:
            parts.append(rng.choice(extra))
        if rng.random() < 0.7:
            parts.append(rng.choice(SPACES))
    return "".join(parts)


class Case:
    """A tokenizer here (`path`, `pattern`) and there (`encode(text, special)`, `decode(ids)`)."""

    def __init__(self, name, path, pattern, encode, decode, extra=(), modes=("text", "special")):
        self.name, self.path, self.pattern, self.modes = name, str(path), pattern, modes
        self.encode, self.decode, self.extra = encode, decode, list(extra)


def hugging_face_case(name, source, directory, decodes=True):
    """`source`: the file's content as a dict."""
    path = directory / f"{name}.json"
    path.write_text(json.dumps(source, ensure_ascii=False), encoding="utf-8")
    tokenizer = Tokenizer.from_file(str(path))

    def encode(text, special):
        tokenizer.encode_special_tokens = not special
        return tokenizer.encode(text, add_special_tokens=False).ids

    extra = [token["content"] for token in source["added_tokens"]]
    decode = (lambda ids: tokenizer.decode(ids, skip_special_tokens=False)) if decodes else None
    return Case(name, path, "", encode, decode, extra)


def tiktoken_case(name, path):
    ranks = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    tiktoken_ext.openai_public.load_tiktoken_bpe = lambda *_, **__: ranks
    encoding = tiktoken.Encoding(**tiktoken_ext.openai_public.ENCODING_CONSTRUCTORS[name]())

    def encode(text, special):
        return encoding.encode(text, allowed_special="all") if special else encoding.encode_ordinary(text)

    return Case(name, path, "", encode, encoding.decode, encoding.special_tokens_set)


def sentencepiece_case(name, text, directory, **options):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text.splitlines()), model_prefix=str(directory / name), minloglevel=2,
        num_threads=1, input_sentence_size=20000, shuffle_input_sentence=False, **options)
    path = directory / f"{name}.model"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return Case(name, path, "", lambda text, _: processor.encode(text), lambda ids: processor.decode(ids),
                modes=("text",))


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def sequence(key, *items):
    return {"type": "Sequence", key: list(items)}


def byte_level(use_regex=False, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def added(id, content, **flags):
    return {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False} | flags


def byte_level_variants(qwen, directory):
    """The large vocabulary under the pre-tokenizers, normalizers and added tokens of other families."""

    def variant(name, pre_tokenizer=None, normalizer=None, ignore_merges=False, tokens=()):
        source = dict(qwen, model=dict(qwen["model"], ignore_merges=ignore_merges), normalizer=normalizer)
        source["added_tokens"] = list(qwen["added_tokens"])
        for content, flags in tokens:
            id = qwen["model"]["vocab"].get(content, 1 + max(token["id"] for token in source["added_tokens"]))
            source["added_tokens"].append(added(id, content, **flags))
        if pre_tokenizer:
            source["pre_tokenizer"] = pre_tokenizer
        return hugging_face_case(name, source, directory, decodes=False)

    llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
              r"\s+(?!\S)|\s+")
    pre = lambda *items: sequence("pretokenizers", *items)
    yield variant("gpt2", byte_level(use_regex=True))
    yield variant("gpt2-prefix", byte_level(use_regex=True, add_prefix_space=True))
    yield variant("llama3", pre(split(llama3), byte_level()), ignore_merges=True)
    yield variant("o200k", pre(split(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+", "Removed", True), byte_level()))
    yield variant("deepseek", pre(
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
        {"type": "Digits", "individual_digits": True}, byte_level()))
    yield variant("deepseek3", pre(
        split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"),
        split(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
              r"\s*[\r\n]+|\s+(?!\S)|\s+"), byte_level()))
    yield variant("starcoder", pre({"type": "Digits", "individual_digits": True}, byte_level(use_regex=True)))
    for behavior in ("Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"):
        for invert in (False, True):
            yield variant(f"split-{behavior}-{invert}", pre(split(r"\w+\b|[\W_]$", behavior, invert), byte_level()))
    yield variant("classes", pre(
        {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Whitespace"},
        {"type": "Digits", "individual_digits": False}, {"type": "CharDelimiterSplit", "delimiter": "e"}, byte_level()))
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield variant(form, normalizer={"type": form})
    yield variant("normalizers", normalizer=sequence(
        "normalizers", {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"},
        {"type": "Lowercase"}, {"type": "Replace", "pattern": {"Regex": r"\d{2}+|\h\s"}, "content": "<#>"},
        {"type": "Replace", "pattern": {"String": "e"}, "content": "éé"}, {"type": "Prepend", "prepend": "»"}))
    yield variant("added", normalizer={"type": "Lowercase"}, tokens=[
        ("the", {"single_word": True}), ("!!", {"lstrip": True}), ("??", {"rstrip": True}), ("中", {"normalized": True}),
        ("DON", {"normalized": True}), ("   ", {}), ("int main", {}), ("in", {}), ("中文", {"special": True}),
        ("self", {"lstrip": True, "rstrip": True, "normalized": True}), ("a_", {"special": True, "normalized": True})])


def character_variants(tiny, directory):
    """The small vocabulary over characters, with other settings."""

    def variant(name, **changes):
        source = copy.deepcopy(tiny)
        for key, value in changes.items():
            if key in source["model"]:
                source["model"][key] = value
            else:
                source[key] = value
        return hugging_face_case(name, source, directory, decodes="added_tokens" in changes or "decoder" in changes)

    # Its added tokens are normalized, and the library then also decodes them to their normalized content.
    yield variant("tinystories", added_tokens=[])
    yield variant("tinystories-added", normalizer=None)
    yield variant("gemma", decoder=sequence(
        "decoders", {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}), normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        pre_tokenizer={"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False})
    for scheme in ("always", "first", "never"):
        for cut in (False, True):
            metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
            yield variant(f"metaspace-{scheme}-{cut}", normalizer=None, pre_tokenizer=metaspace)
    for fuse in (False, True):
        yield variant(f"unknown-{fuse}", fuse_unk=fuse, byte_fallback=False)
    yield variant("no-unknown", unk_token=None, byte_fallback=False)
    # Only some bytes have a token.
    vocabulary = {token: id for token, id in tiny["model"]["vocab"].items() if not token.startswith("<0x") or id % 3}
    source = dict(tiny, model=dict(tiny["model"], vocab=vocabulary))
    yield hugging_face_case("some-bytes", source, directory, decodes=False)


def all_cases(data, directory):
    qwen = json.loads((data / "tokenizers/qwen3/tokenizer.json").read_text(encoding="utf-8"))
    tiny = json.loads((data / "tinystories-656k/tokenizer.json").read_text(encoding="utf-8"))
    yield hugging_face_case("qwen3", qwen, directory)
    for name in ("r50k_base", "cl100k_base"):
        yield tiktoken_case(name, data / f"tokenizers/openai/{name}.tiktoken")
    yield from character_variants(tiny, directory)
    yield from byte_level_variants(qwen, directory)
    text = (data / "tokenizers/openai/TestPlans.txt").read_text(encoding="utf-8")
    yield sentencepiece_case("sp-bpe", text, directory, model_type="bpe", vocab_size=1500, byte_fallback=True,
                             normalization_rule_name="identity", split_digits=True, remove_extra_whitespaces=False)
    yield sentencepiece_case("sp-unigram", text, directory, model_type="unigram", vocab_size=1200,
                             hard_vocab_limit=False, character_coverage=0.99, split_digits=True)
    yield sentencepiece_case("sp-no-prefix", text, directory, model_type="bpe", vocab_size=1500, byte_fallback=True,
                             add_dummy_prefix=False)
    yield sentencepiece_case("sp-gemma-like", text, directory, model_type="bpe", vocab_size=1500, byte_fallback=True,
                             normalization_rule_name="identity", split_digits=True, add_dummy_prefix=False,
                             remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
                             user_defined_symbols=["\u2581" * n for n in range(2, 17)] + ["\n", "\n\n"])


def run_probe(probe, case, mode, texts=None):
    result = subprocess.run([probe, case.path, case.pattern, mode], check=True, stdout=subprocess.PIPE,
                            input=None if texts is None else "".join(json.dumps(text) + "\n" for text in texts).encode())
    return result.stdout.decode().split("\n")[:-1]


def compare_strings(probe, case, count, blocks):
    differences = 0
    for mode in case.modes:
        rng = random.Random(f"{case.name} {mode}")
        texts = [random_text(rng, blocks, case.extra) for _ in range(count)]
        for text, line in zip(texts, run_probe(probe, case, mode, texts), strict=True):
            ours = json.loads(line)
            theirs = case.encode(text, mode == "special")
            decoded = case.decode(theirs) if case.decode else None
            if ours["ids"] == theirs and decoded in (None, ours["text"]):
                continue
            differences += 1
            if differences <= 3:
                print(f"{case.name} ({mode}): {text!r}\n  ours   {ours['ids']} {ours['text']!r}\n"
                      f"  theirs {theirs} {decoded!r}")
    return differences


def compare_files(probe, case, files):
    differences = 0
    for file in files:
        text = pathlib.Path(file).read_bytes().decode()
        same = [int(line) for line in run_probe(probe, case, file)] == case.encode(text, False)
        differences += not same
        print(f"{case.name}: ids of {file} are {'equal' if same else 'NOT equal'}")
    return differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("probe")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--only")
    parser.add_argument("--files", nargs="*")
    arguments = parser.parse_args()
    blocks = assigned()
    differences = 0
    with tempfile.TemporaryDirectory() as directory:
        for case in all_cases(arguments.data, pathlib.Path(directory)):
            if arguments.only and case.name != arguments.only:
                continue
            if arguments.files:
                differences += compare_files(arguments.probe, case, arguments.files)
                continue
            here = compare_strings(arguments.probe, case, arguments.count, blocks)
            print(f"{case.name}: {here} differences in {arguments.count * len(case.modes)} strings", flush=True)
            differences += here
    print(f"{differences} differences")
    sys.exit(differences > 0)


if __name__ == "__main__":
    main()
