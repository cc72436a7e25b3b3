#include "bench/settings.h"

#include "core/machine.h"

namespace longspan::bench {

std::vector<int> Settings::Threads() const {
  if (threads != 0) return {static_cast<int>(threads)};
  const int all = NumCores();
  return all == 1 ? std::vector<int>{1} : std::vector<int>{1, all};
}

std::vector<DType> Settings::DTypes(std::vector<DType> defaults) const {
  if (dtype.empty()) return defaults;
  return {dtype == Name(DType::kBFloat16) ? DType::kBFloat16 : DType::kFloat32};
}

}  // namespace longspan::bench
