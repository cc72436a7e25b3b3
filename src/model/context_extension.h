// Changes of a config.json that let a model read further: another rotary embedding, more positions. They take
// and give the file's text, so that what is saved is what was changed, in the spelling and order that it came
// in; whoever wants the model parses the result.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace longspan {

// The text with another rope_theta (0: as it is) and another rope_scaling (empty: as it is), which is given
// as its keys, rope_type among them; a name of "" is the rope_type alone, and "default" ends any scaling.
// Where kinds of layers have rotary embeddings of their own, they are those of full_attention.
// original_max_position_embeddings, if it is needed and not given, is the model's max_position_embeddings.
// Throws Error(kUsage) for what ParseModelConfig would refuse; `where` names the text in errors.
std::string OverrideRope(std::string_view json, const std::string& where, double rope_theta,
                         const std::map<std::string, std::string>& rope_scaling);

// The text with at least so many max_position_embeddings. What transformers would derive from that number
// (original_max_position_embeddings, factor, attention_factor) is written down as it was before, so that the
// model computes the same.
std::string ExtendPositions(std::string_view json, const std::string& where, int64_t max_position_embeddings);

// Which of a config.json's keys differ, "key: before → after; …"; empty if none does.
std::string DescribeChanges(std::string_view before, std::string_view after);

}  // namespace longspan
