// A line of a JSONL data set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longspan {

struct JsonlDocument {
  std::optional<std::string> text;  // else the ids are the document
  std::vector<int32_t> ids;
  // What each id counts as when it is a target: its label, or kIgnoreTarget. None: the ids themselves.
  std::optional<std::vector<int32_t>> labels;
};

// The line is an object with either `text` (a string) or `input_ids` (integers in [0, vocab_size)). With
// `input_ids` there may be one of two lists of the same length: `loss_mask` (0 or 1, or booleans: 1 where the
// id counts as a target) or `labels` (an id, or −100 for no target; as in Hugging Face not shifted, so
// labels[i] belongs to input_ids[i] and is what row i−1 is asked for). Other keys are ignored. Throws Error,
// beginning with `where`, for anything else.
JsonlDocument ParseJsonlLine(std::string_view line, int64_t vocab_size, const std::string& where);

}  // namespace longspan
