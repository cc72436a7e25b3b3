#include <cstring>

#include "backend/cpu/ops.h"
#include "backend/cpu/parallel.h"

namespace longspan::cpu {
namespace {

// A token outside the table would read or write anywhere; looking at each costs nothing beside a row of the
// table.
const int32_t* CheckedTokens(const Tensor& tokens, int64_t vocabulary) {
  const int32_t* data = tokens.data<int32_t>();
  for (int64_t t = 0; t < tokens.num_elements(); ++t) CHECK(data[t] >= 0 && data[t] < vocabulary);
  return data;
}

}  // namespace

void Embedding(Threads threads, Tensor tokens, Tensor table, Tensor out) {
  const int32_t* token = CheckedTokens(tokens, table.dim(0));
  const int64_t row_bytes = table.dim(1) * SizeOf(table.dtype());
  const char* from = static_cast<const char*>(table.raw());
  char* to = static_cast<char*>(out.raw());
  constexpr int64_t kBlock = 64;
  ParallelBlocks(threads.num, tokens.num_elements(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      std::memcpy(to + t * row_bytes, from + token[t] * row_bytes, static_cast<size_t>(row_bytes));
    }
  });
}

// Each thread owns some columns of the table and walks over all tokens in order: no two threads write one
// element, and every element's sum has one order.
void EmbeddingBackward(Threads threads, Tensor tokens, Tensor dout, int64_t padding_idx, Tensor dtable) {
  const int32_t* token = CheckedTokens(tokens, dtable.dim(0));
  const int64_t width = dtable.dim(1), num_tokens = tokens.num_elements();
  float* to = dtable.data<float>();
  constexpr int64_t kLine = 16;  // elements of a cache line
  const int64_t lines = (width + kLine - 1) / kLine;
  const int64_t columns = (lines + threads.num - 1) / threads.num * kLine;
  WithFloatType(dout.dtype(), [&]<class T>(T*) {
    const T* from = dout.data<T>();
    const auto accumulate = threads.kernels.For<T>().accumulate;
    if (width == 0) return;
    ParallelBlocks(threads.num, width, columns, [&](int64_t begin, int64_t end) {
      for (int64_t t = 0; t < num_tokens; ++t) {
        if (token[t] == padding_idx) continue;
        accumulate(from + t * width + begin, to + token[t] * width + begin, end - begin);
      }
    });
  });
}

}  // namespace longspan::cpu
