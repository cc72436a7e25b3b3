// Counter-based random numbers: a value is a pure function of (seed, stream, index), so any rank can make any
// part.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace longspan {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a bijection of the
// counter.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// All functions of one index are made of the same 128 bits: use one of them per index.
class CounterRandom {
 public:
  // `stream` keeps uses of one seed apart: a tensor's name, "shuffle/3", …
  CounterRandom(uint64_t seed, std::string_view stream);

  uint64_t Bits(uint64_t index) const;
  double Uniform(uint64_t index) const;                  // [0, 1), 53 bits
  double Normal(uint64_t index) const;                   // mean 0, standard deviation 1 (Box–Muller)
  uint64_t Below(uint64_t bound, uint64_t index) const;  // [0, bound), unbiased to 2^-64

 private:
  struct Block {
    uint64_t first, second;
  };
  Block At(uint64_t index) const;

  uint64_t key_, stream_;
};

}  // namespace longspan
