#include "bench/cases.h"

#include <algorithm>

#include "core/check.h"
#include "core/random.h"

namespace longspan::bench {
namespace {

constexpr MaskCase kMasks[] = {
    {"causal", {.kind = MaskKind::kCausal}},
    {"packed_512", {.kind = MaskKind::kCausal}, 512},
    {"window_1024", {.kind = MaskKind::kSlidingWindow, .window = 1024}},
};

constexpr int64_t kHeadDims[] = {64, 128};

constexpr ModelCase kModels[] = {{"100m", "100m", 4096, true}, {"8b", "llama3.1-8b", 1024, false}};

class RandomCorpus final : public Corpus {
 public:
  RandomCorpus(int64_t num_tokens, int64_t vocab_size) : num_tokens_(num_tokens), vocab_size_(vocab_size) {}

  int64_t num_documents() const override { return 1; }
  int64_t num_tokens(int64_t) const override { return num_tokens_; }
  void ReadTokens(int64_t, int64_t begin, std::span<int32_t> out) const override {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<int32_t>(
          random_.Below(static_cast<uint64_t>(vocab_size_), static_cast<uint64_t>(begin) + i));
  }
  void ReadLabels(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    ReadTokens(document, begin, out);
  }
  std::string DocumentName(int64_t) const override { return "random tokens"; }

 private:
  const int64_t num_tokens_, vocab_size_;
  const CounterRandom random_{0, "tokens"};
};

}  // namespace

Mask MaskCase::Make(int64_t length) const {
  std::vector<Range> documents;
  const int64_t size = document > 0 ? document : length;
  for (int64_t begin = 0; begin < length; begin += size)
    documents.push_back({begin, std::min(length, begin + size)});
  return MakeMask(spec, documents);
}

std::span<const MaskCase> MaskCases() { return kMasks; }

std::span<const int64_t> HeadDims() { return kHeadDims; }

int64_t QueryHeadsFor(int64_t length) { return length <= 2048 ? 8 : length <= 4096 ? 4 : 2; }

ModelConfig ModelCase::Config() const {
  return ParseModelConfig(BuiltinModelJson(builtin), std::string(builtin));
}

std::span<const ModelCase> ModelCases() { return kModels; }

std::vector<Product> ProductsOf(const ModelConfig& m, bool with_head, DType dtype) {
  const int64_t attention = m.num_attention_heads * m.head_dim;
  std::vector<Product> products = {{"query", m.hidden_size, attention, dtype},
                                   {"key", m.hidden_size, m.num_key_value_heads * m.head_dim, dtype},
                                   {"output", attention, m.hidden_size, dtype},
                                   {"gate", m.hidden_size, m.intermediate_size, dtype},
                                   {"down", m.intermediate_size, m.hidden_size, dtype}};
  if (with_head) products.push_back({"head", m.hidden_size, m.vocab_size, DType::kFloat32});
  return products;
}

std::unique_ptr<Corpus> MakeRandomCorpus(int64_t num_tokens, int64_t vocab_size) {
  CHECK(num_tokens > 0 && vocab_size > 0);
  return std::make_unique<RandomCorpus>(num_tokens, vocab_size);
}

}  // namespace longspan::bench
