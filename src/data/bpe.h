// Byte pair encoding: a piece of text to token ids by merging neighbours, lowest rank first.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/pair_table.h"

namespace longspan {

inline constexpr int64_t kMaxVocabSize = 1 << 24;  // of any tokenizer; the largest in use have some 2^18 ids

// What a vocabulary says; checked by whoever read it.
struct BpeSpec {
  // What merging starts from: single bytes, or characters.
  enum class Alphabet { kBytes, kCharacters };
  struct Merge {
    int32_t left, right, result;
    uint32_t rank;  // below 2^24
  };

  Alphabet alphabet = Alphabet::kBytes;
  std::unordered_map<std::string, int32_t> ids;  // of tokens, by their bytes (spelled out, no "Ġ")
  std::vector<Merge> merges;                     // of equal pairs the last counts
  bool whole_pieces = false;                     // a piece that is a token is that token, whatever merges say
  // Where a character is no token: its bytes' tokens if all of them have one (−1: none), …
  std::optional<std::array<int32_t, 256>> byte_ids;
  std::optional<int32_t> unknown_id;  // … else this one; without, the character is left out
  bool fuse_unknown = false;          // one unknown id for a run of such characters
};

// Ids are those of Hugging Face's `tokenizers` (and of tiktoken, for its vocabularies): of the neighbours
// that can be merged, those with the lowest rank are merged first, the leftmost of several. Encoding n bytes
// takes O(n log n) time whatever they are.
class Bpe {
 public:
  // Memory that encoding uses again and again, and the ids of short pieces met before. For one thread at a
  // time, and one Bpe.
  class Scratch {
   public:
    Scratch();
    ~Scratch();

   private:
    friend class Bpe;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  explicit Bpe(BpeSpec spec);

  // Appends the ids of a piece of valid UTF-8, or of any bytes if the alphabet is bytes.
  void Encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>* ids) const;

 private:
  void EncodeSymbols(std::string_view piece, Scratch::Impl& s, std::vector<int32_t>* ids) const;
  void MergeAll(Scratch::Impl& s, std::vector<int32_t>* ids) const;
  int32_t CharacterId(std::string_view character) const;  // or −1

  BpeSpec spec_;
  size_t longest_token_ = 0;
  std::array<int32_t, 256> first_ids_;  // of single bytes, or of ASCII characters; −1: no token
  PairTable merges_;                    // pair of ids → rank << 32 | result
  PairTable joints_;                    // pairs of first symbols that some merge may find at its seam
  bool any_joint_ = false;              // that cannot be said
};

}  // namespace longspan
