// A corpus in memory, whose tokens say where they are from.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/target.h"
#include "data/corpus.h"

namespace longspan::testing {

using Ids = std::vector<int32_t>;

class FakeCorpus final : public Corpus {
 public:
  explicit FakeCorpus(std::vector<Ids> documents) : tokens_(documents), labels_(std::move(documents)) {}
  FakeCorpus(std::vector<Ids> documents, std::vector<Ids> labels)
      : tokens_(std::move(documents)), labels_(std::move(labels)) {}

  int64_t num_documents() const override { return static_cast<int64_t>(tokens_.size()); }
  int64_t num_tokens(int64_t document) const override {
    return static_cast<int64_t>(tokens(document).size());
  }
  void ReadTokens(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    Read(tokens(document), begin, out);
  }
  void ReadLabels(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    Read(labels(document), begin, out);
  }
  std::string DocumentName(int64_t document) const override { return "fake:" + std::to_string(document + 1); }

  const Ids& tokens(int64_t document) const { return tokens_[static_cast<size_t>(document)]; }
  const Ids& labels(int64_t document) const { return labels_[static_cast<size_t>(document)]; }

 private:
  static void Read(const Ids& from, int64_t begin, std::span<int32_t> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = from.at(static_cast<size_t>(begin) + i);
  }
  std::vector<Ids> tokens_, labels_;
};

// Documents of these lengths with the tokens 1, 2, 3, … over the whole corpus; labels are other numbers, or
// none for a third of them.
inline FakeCorpus CountingCorpus(const std::vector<int64_t>& lengths, std::mt19937& random) {
  std::vector<Ids> tokens, labels;
  int32_t next = 1;
  for (const int64_t length : lengths) {
    Ids document, label;
    for (int64_t i = 0; i < length; ++i, ++next) {
      document.push_back(next);
      label.push_back(random() % 3 == 0 ? kIgnoreTarget : 1000000 + next);
    }
    tokens.push_back(document);
    labels.push_back(label);
  }
  return {tokens, labels};
}

inline std::vector<int64_t> RandomLengths(std::mt19937& random, int64_t num_documents, int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < num_documents; ++i)
    lengths.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(longest)));
  return lengths;
}

}  // namespace longspan::testing
