// What is measured, and, at shorter lengths, tested: masks and sizes of attention, the products of models'
// layers, the text that a step trains on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "data/corpus.h"
#include "mask/mask.h"
#include "model/config.h"

namespace longspan::bench {

// Causal first: what the others are compared with.
struct MaskCase {
  std::string_view name;
  MaskSpec spec;
  int64_t document = 0;  // every so many tokens a new one; 0: one document
  Mask Make(int64_t length) const;
};
std::span<const MaskCase> MaskCases();

// Head widths, of keys and values alike.
std::span<const int64_t> HeadDims();

// Few heads where the sequence is long, so that a run takes about a second; two query heads to a KV head.
int64_t QueryHeadsFor(int64_t length);

// A model whose layers' products are measured, and with how many tokens at a time.
struct ModelCase {
  std::string_view name;
  std::string_view builtin;  // recipes/models
  int64_t rows;
  bool with_head;
  ModelConfig Config() const;
};
std::span<const ModelCase> ModelCases();

// y (rows, out) = x (rows, in) · Wᵀ.
struct Product {
  std::string_view name;
  int64_t in, out;
  DType out_dtype;  // of y; the loss wants logits in f32
};
// Each shape once: value is as key, and up as gate.
std::vector<Product> ProductsOf(const ModelConfig& model, bool with_head, DType dtype);

// One document of random ids: nothing to learn, and as much work as any text.
std::unique_ptr<Corpus> MakeRandomCorpus(int64_t num_tokens, int64_t vocab_size);

}  // namespace longspan::bench
