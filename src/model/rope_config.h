// RopeConfig as config.json spells it.
#pragma once

#include <optional>
#include <string>

#include "model/config_reader.h"
#include "model/families.h"
#include "model/rope.h"

namespace longspan {

// What a rotary embedding's own object leaves to the config around it.
struct RopeContext {
  const ModelFamily* family = nullptr;
  int64_t head_dim = 0, max_position_embeddings = 0;
  std::optional<double> theta = {};  // rope_theta or rope_local_base_freq there
  double default_theta = 10000;
  std::optional<int64_t> original_max_position_embeddings = {};  // prevails over the object's
  std::optional<double> partial_rotary_factor = {};
};

// Of one object: rope_scaling, rope_parameters, or what the latter says of a layer type. Nothing is left out
// of the result; kinds, keys and values that are not implemented are refused by name. `rope_type_required`:
// unless the object is empty.
RopeConfig ReadRope(const ConfigReader& object, const RopeContext& context, bool rope_type_required);

// The object in the spelling of rope_parameters, nothing left out.
ConfigJson RopeParameters(const RopeConfig& rope);

}  // namespace longspan
