#include "data/data_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/format.h"

namespace longspan {
namespace {

// "512", "1K", "2M": K is 1024.
std::string PowerOfTwo(size_t exponent) {
  constexpr std::string_view kUnits = " KMGTPE";
  std::string text = std::to_string(int64_t{1} << exponent % 10);
  if (exponent >= 10) text += kUnits[exponent / 10];
  return text;
}

}  // namespace

CorpusLengths MeasureLengths(const Corpus& corpus) {
  CorpusLengths lengths;
  lengths.num_documents = corpus.num_documents();
  std::vector<int64_t> sizes;
  for (int64_t document = 0; document < lengths.num_documents; ++document) {
    const int64_t size = corpus.num_tokens(document);
    sizes.push_back(size);
    lengths.num_tokens += size;
    lengths.longest = std::max(lengths.longest, size);
    const auto bucket = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(size)) - 1);
    if (bucket >= lengths.by_length.size()) lengths.by_length.resize(bucket + 1);
    ++lengths.by_length[bucket].num_documents;
    lengths.by_length[bucket].num_tokens += size;
  }
  const auto middle = sizes.begin() + (std::ssize(sizes) - 1) / 2;
  std::nth_element(sizes.begin(), middle, sizes.end());
  lengths.median = *middle;
  lengths.mean = static_cast<double>(lengths.num_tokens) / static_cast<double>(lengths.num_documents);
  return lengths;
}

EpochReport MeasureEpoch(const Corpus& corpus, int64_t max_target_length, uint64_t seed, bool shuffle,
                         Packing packing) {
  EpochReport report;
  SequenceReader reader(corpus, max_target_length, seed, shuffle, packing);
  while (reader.position().epoch == 0) {
    for (const Piece& piece : reader.NextPieces()) {
      report.num_tokens += piece.size();
      if (piece.begin == 0 && piece.end < corpus.num_tokens(piece.document)) ++report.num_cut;
    }
    ++report.num_sequences;
  }
  report.num_rows = report.num_sequences * max_target_length;
  return report;
}

std::vector<std::string> LengthTable(const CorpusLengths& lengths) {
  constexpr double kBarLength = 30;
  std::vector<std::string> table = {fmt::format("{:>12}  {:>9}  {:>8}", "length", "documents", "tokens")};
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  bool begun = false;
  for (size_t k = 0; k < lengths.by_length.size(); ++k) {
    const auto& [num_documents, num_tokens] = lengths.by_length[k];
    begun = begun || num_documents > 0;
    if (!begun) continue;
    const double tokens = share(num_tokens, lengths.num_tokens);
    std::string bar;
    for (int i = 0; i < static_cast<int>(kBarLength * tokens + 0.5); ++i) bar += "█";
    table.push_back(fmt::format("{:>4} to {:>4}  {:>9}  {:>8}{}{}", PowerOfTwo(k), PowerOfTwo(k + 1),
                                Percent(share(num_documents, lengths.num_documents)), Percent(tokens),
                                bar.empty() ? "" : "  ", bar));
  }
  return table;
}

}  // namespace longspan
