#include "core/random.h"

#include <cmath>
#include <numbers>

namespace longspan {
namespace {

__extension__ using uint128 = unsigned __int128;

constexpr double kTwoToMinus53 = 0x1p-53;

// FNV-1a, 64 bits: names of streams are few and short, so that two never collide in practice.
uint64_t Hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

constexpr uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
constexpr uint64_t Join(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  auto [c0, c1, c2, c3] = counter;
  auto [k0, k1] = key;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = High(p1) ^ c1 ^ k0;
    c1 = Low(p1);
    c2 = High(p0) ^ c3 ^ k1;
    c3 = Low(p0);
    k0 += 0x9E3779B9;  // the golden ratio
    k1 += 0xBB67AE85;  // √3 − 1
  }
  return {c0, c1, c2, c3};
}

CounterRandom::CounterRandom(uint64_t seed, std::string_view stream) : key_(seed), stream_(Hash(stream)) {}

CounterRandom::Block CounterRandom::At(uint64_t index) const {
  const auto words =
      Philox4x32({Low(index), High(index), Low(stream_), High(stream_)}, {Low(key_), High(key_)});
  return {Join(words[0], words[1]), Join(words[2], words[3])};
}

uint64_t CounterRandom::Bits(uint64_t index) const { return At(index).first; }

double CounterRandom::Uniform(uint64_t index) const {
  return static_cast<double>(Bits(index) >> 11) * kTwoToMinus53;
}

double CounterRandom::Normal(uint64_t index) const {
  const Block block = At(index);
  const double radius_uniform = static_cast<double>((block.first >> 11) + 1) * kTwoToMinus53;  // (0, 1]
  const double angle_uniform = static_cast<double>(block.second >> 11) * kTwoToMinus53;
  return std::sqrt(-2 * std::log(radius_uniform)) * std::cos(2 * std::numbers::pi * angle_uniform);
}

uint64_t CounterRandom::Below(uint64_t bound, uint64_t index) const {
  // ⌊x · bound / 2^128⌋ of 128 random bits x: no value is more than 2^-64 likelier than another, relatively.
  const Block block = At(index);
  const uint128 low = static_cast<uint128>(block.second) * bound;
  const uint128 high = static_cast<uint128>(block.first) * bound;
  return static_cast<uint64_t>((high + (low >> 64)) >> 64);
}

}  // namespace longspan
