// What reader and writer of token files share; token_file.h says what a file looks like.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace longspan::token_file {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

inline constexpr std::array<char, 16> kMagic = {'l', 'o', 'n', 'g', 's', 'p', 'a', 'n',
                                                ' ', 't', 'o', 'k', 'e', 'n', 's', '\n'};
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kBlockBytes = size_t{64} << 10;
inline constexpr size_t kAlignment = 8;

struct Start {
  std::array<char, 16> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t reserved = 0;
  uint64_t reserved_too = 0;
};
static_assert(sizeof(Start) == 32);

struct Footer {
  uint64_t num_tokens = 0, num_documents = 0, num_files = 0, names_bytes = 0;
  uint64_t vocab_size = 0, fingerprint = 0;
  uint32_t id_bytes = 0, has_mask = 0;
  uint32_t index_check = 0, footer_check = 0;
};
static_assert(sizeof(Footer) == 64);

uint32_t Crc32(uint32_t check, std::span<const std::byte> bytes);  // goes on from `check`; 0 at the beginning
uint32_t FooterCheck(const Footer& footer);

constexpr uint64_t Padded(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace longspan::token_file
