#include "data/best_fit.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace longspan {
namespace {

bool ComesFirst(const Piece& a, const Piece& b) {
  return std::tie(a.document, a.begin) < std::tie(b.document, b.begin);
}

}  // namespace

std::vector<std::vector<Piece>> PackBestFit(const std::vector<Piece>& pieces, int64_t max_target_length) {
  std::vector<Piece> cut;
  for (const Piece& piece : pieces)
    for (int64_t begin = piece.begin; begin < piece.end; begin += max_target_length)
      cut.push_back({piece.document, begin, std::min(piece.end, begin + max_target_length)});
  std::stable_sort(cut.begin(), cut.end(),
                   [](const Piece& a, const Piece& b) { return a.size() > b.size(); });

  std::vector<std::vector<Piece>> sequences;
  std::map<int64_t, std::vector<size_t>> open;  // free rows → sequences that have so many
  for (const Piece& piece : cut) {
    const auto fullest = open.lower_bound(piece.size());
    size_t sequence = sequences.size();
    int64_t free = max_target_length;
    if (fullest == open.end()) {
      sequences.emplace_back();
    } else {
      free = fullest->first;
      sequence = fullest->second.back();
      fullest->second.pop_back();
      if (fullest->second.empty()) open.erase(fullest);
    }
    sequences[sequence].push_back(piece);
    if (free > piece.size()) open[free - piece.size()].push_back(sequence);
  }

  for (std::vector<Piece>& sequence : sequences) std::sort(sequence.begin(), sequence.end(), ComesFirst);
  std::sort(sequences.begin(), sequences.end(),
            [](const auto& a, const auto& b) { return ComesFirst(a.front(), b.front()); });
  return sequences;
}

std::vector<Piece> JoinPieces(const std::vector<std::vector<Piece>>& sequences) {
  std::vector<Piece> pieces;
  for (const std::vector<Piece>& sequence : sequences)
    pieces.insert(pieces.end(), sequence.begin(), sequence.end());
  std::sort(pieces.begin(), pieces.end(), ComesFirst);
  std::vector<Piece> joined;
  for (const Piece& piece : pieces) {
    if (!joined.empty() && joined.back().document == piece.document && joined.back().end == piece.begin)
      joined.back().end = piece.end;
    else
      joined.push_back(piece);
  }
  return joined;
}

}  // namespace longspan
