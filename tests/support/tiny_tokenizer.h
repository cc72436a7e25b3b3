// A tokenizer.json of a dozen tokens.
#pragma once

namespace longspan::testing {

// Letters a to h and the pairs that begin with a, behind a BOS.
inline constexpr const char* kTinyTokenizer = R"({
  "added_tokens": [{"id": 11, "content": "<s>", "special": true, "normalized": false, "single_word": false,
                    "lstrip": false, "rstrip": false}],
  "normalizer": null, "pre_tokenizer": null, "decoder": null,
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [11], "tokens": ["<s>"]}}},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
    "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "g": 6, "h": 7, "ab": 8, "ac": 9, "é": 10},
    "merges": ["a b", "a c"]}})";

}  // namespace longspan::testing
