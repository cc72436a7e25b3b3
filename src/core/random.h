// Counter-based random numbers: a value is a pure function of (seed, stream, index), so any rank can make any part.
#pragma once

#include <cstdint>
#include <string_view>

namespace longspan {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
class CounterRandom {
 public:
  // `stream` keeps uses of one seed apart: a tensor's name, "shuffle/3", …
  CounterRandom(uint64_t seed, std::string_view stream);

  uint64_t Bits(uint64_t index) const;
  double Uniform(uint64_t index) const;              // [0, 1), 53 bits
  double Normal(uint64_t index) const;               // mean 0, standard deviation 1 (Box–Muller)
  uint64_t Below(uint64_t bound, uint64_t index) const;  // [0, bound), unbiased to 2^-64

 private:
  uint64_t key_, stream_;
};

}  // namespace longspan
