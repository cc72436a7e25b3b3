#include "data/bpe.h"

#include <algorithm>
#include <functional>

#include "core/check.h"
#include "data/piece_cache.h"
#include "data/utf8.h"

namespace longspan {
namespace {

constexpr int32_t kNoToken = -1;

// A token of the piece while it is merged; the list is threaded through the array that they began as.
struct Symbol {
  int32_t id;  // kNoToken: merged into the one before
  int64_t previous, next;
};

// A merge that was possible when it was queued: rank and place of the left symbol in one number, so that the
// least number is the next to do.
constexpr int kPlaceBits = 40;
uint64_t Candidate(uint64_t rank, int64_t place) { return rank << kPlaceBits | static_cast<uint64_t>(place); }

}  // namespace

struct Bpe::Scratch::Impl {
  PieceCache cache;
  std::vector<Symbol> symbols;
  std::vector<uint64_t> candidates;  // a heap
};

Bpe::Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Bpe::Scratch::~Scratch() = default;

Bpe::Bpe(BpeSpec spec) : spec_(std::move(spec)) {
  const bool bytes = spec_.alphabet == BpeSpec::Alphabet::kBytes;
  first_ids_.fill(kNoToken);
  std::vector<std::string_view> tokens;
  for (const auto& [token, id] : spec_.ids) {
    longest_token_ = std::max(longest_token_, token.size());
    if (token.size() == 1) first_ids_[static_cast<unsigned char>(token[0])] = id;
    if (static_cast<size_t>(id) >= tokens.size()) tokens.resize(static_cast<size_t>(id) + 1);
    tokens[static_cast<size_t>(id)] = token;
  }

  // Symbols that stand for other text than their token spells may be at the seam of any merge.
  std::vector<bool> is_other(tokens.size());
  if (spec_.unknown_id) is_other[static_cast<size_t>(*spec_.unknown_id)] = true;
  if (spec_.byte_ids) {
    for (const int32_t id : *spec_.byte_ids)
      if (id != kNoToken) is_other[static_cast<size_t>(id)] = true;
  }
  const auto at = [](int32_t id) { return static_cast<size_t>(id); };
  for (const BpeSpec::Merge& merge : spec_.merges) {
    merges_.Set(static_cast<uint32_t>(merge.left), static_cast<uint32_t>(merge.right),
                uint64_t{merge.rank} << 32 | static_cast<uint32_t>(merge.result));
    if (is_other[at(merge.left)] || is_other[at(merge.right)] || is_other[at(merge.result)]) {
      any_joint_ = true;
      continue;
    }
    const std::string_view left = tokens[at(merge.left)], right = tokens[at(merge.right)];
    size_t last = left.size() - 1;
    while (!bytes && last > 0 && (static_cast<unsigned char>(left[last]) & 0xC0u) == 0x80) --last;
    const int32_t before = CharacterId(left.substr(last));
    const int32_t after = CharacterId(right.substr(0, bytes ? 1 : Utf8Length(right[0])));
    if (before != kNoToken && after != kNoToken)
      joints_.Set(static_cast<uint32_t>(before), static_cast<uint32_t>(after), 1);
  }
  spec_.merges = {};
}

int32_t Bpe::CharacterId(std::string_view character) const {
  if (character.size() == 1) return first_ids_[static_cast<unsigned char>(character[0])];
  const auto found = spec_.ids.find(std::string(character));
  return found == spec_.ids.end() ? kNoToken : found->second;
}

void Bpe::Encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>* ids) const {
  Scratch::Impl& s = *scratch.impl_;
  s.cache.Append(piece, ids,
                 [&](std::string_view p, std::vector<int32_t>* out) { EncodeSymbols(p, s, out); });
}

void Bpe::EncodeSymbols(std::string_view piece, Scratch::Impl& s, std::vector<int32_t>* ids) const {
  if (spec_.whole_pieces && piece.size() <= longest_token_) {
    if (const auto found = spec_.ids.find(std::string(piece)); found != spec_.ids.end())
      return ids->push_back(found->second);
  }
  s.symbols.clear();
  const auto add = [&](int32_t id) {
    // No merge reaches over a seam that none has: what is before it is merged by itself.
    if (!s.symbols.empty() && !any_joint_ &&
        joints_.Get(static_cast<uint32_t>(s.symbols.back().id), static_cast<uint32_t>(id)) ==
            PairTable::kNone) {
      MergeAll(s, ids);
      s.symbols.clear();
    }
    const auto place = static_cast<int64_t>(s.symbols.size());
    s.symbols.push_back({id, place - 1, place + 1});
  };
  const bool bytes = spec_.alphabet == BpeSpec::Alphabet::kBytes;
  int64_t pending_unknown = 0;  // unknown ids to add before the next known character
  for (size_t at = 0, size = 0; at < piece.size(); at += size) {
    size = bytes ? 1 : Utf8Length(piece[at]);
    const std::string_view character = piece.substr(at, size);
    if (const int32_t id = CharacterId(character); id != kNoToken) {
      for (; pending_unknown > 0; --pending_unknown) add(*spec_.unknown_id);
      add(id);
      continue;
    }
    const auto byte_id = [&](char c) { return (*spec_.byte_ids)[static_cast<unsigned char>(c)]; };
    if (spec_.byte_ids &&
        std::all_of(character.begin(), character.end(), [&](char c) { return byte_id(c) != kNoToken; })) {
      for (const char c : character) add(byte_id(c));
    } else if (spec_.unknown_id) {
      // Hugging Face's library holds an unknown id back until it knows whether to fuse it: byte tokens in
      // between go first.
      if (pending_unknown > 0 && !spec_.fuse_unknown) add(*spec_.unknown_id);
      pending_unknown = 1;
    }
  }
  for (; pending_unknown > 0; --pending_unknown) add(*spec_.unknown_id);
  MergeAll(s, ids);
}

void Bpe::MergeAll(Scratch::Impl& s, std::vector<int32_t>* ids) const {
  std::vector<Symbol>& symbols = s.symbols;
  const auto size = static_cast<int64_t>(symbols.size());
  CHECK(size < int64_t{1} << kPlaceBits);
  const auto symbol = [&](int64_t place) -> Symbol& { return symbols[static_cast<size_t>(place)]; };
  // The merge of the symbol here with its next: rank << 32 | result, or kNone.
  const auto merge_at = [&](int64_t place) {
    const Symbol& left = symbol(place);
    if (left.next >= size) return PairTable::kNone;
    return merges_.Get(static_cast<uint32_t>(left.id), static_cast<uint32_t>(symbol(left.next).id));
  };

  std::vector<uint64_t>& heap = s.candidates;
  heap.clear();
  for (int64_t place = 0; place + 1 < size; ++place) {
    if (const uint64_t merge = merge_at(place); merge != PairTable::kNone)
      heap.push_back(Candidate(merge >> 32, place));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](int64_t place) {
    const uint64_t merge = merge_at(place);
    if (merge == PairTable::kNone) return;
    heap.push_back(Candidate(merge >> 32, place));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t candidate = heap.back();
    heap.pop_back();
    const auto place = static_cast<int64_t>(candidate & ((uint64_t{1} << kPlaceBits) - 1));
    Symbol& left = symbol(place);
    if (left.id == kNoToken) continue;
    const uint64_t merge = merge_at(place);
    if (merge == PairTable::kNone || merge >> 32 != candidate >> kPlaceBits) continue;  // merged otherwise
    Symbol& right = symbol(left.next);
    left.id = static_cast<int32_t>(merge & 0xFFFFFFFFu);
    left.next = right.next;
    right.id = kNoToken;
    if (left.next < size) symbol(left.next).previous = place;
    if (left.previous >= 0) push(left.previous);
    push(place);
  }
  for (int64_t place = 0; place < size; place = symbol(place).next) ids->push_back(symbol(place).id);
}

}  // namespace longspan
