// Compressed texts, as gzip and zstd write them.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <string>

#include "core/check.h"

namespace longspan::testing {

inline std::string Gzip(const std::string& text) {
  constexpr int kGzip = MAX_WBITS + 16, kMemoryLevel = 8;
  z_stream stream{};
  CHECK(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  CHECK(deflateEnd(&stream) == Z_OK);
  return out;
}

// With a checksum, as the program has it.
inline std::string Zstd(const std::string& text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  const size_t size = ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size());
  CHECK(!ZSTD_isError(size));
  out.resize(size);
  ZSTD_freeCCtx(context);
  return out;
}

}  // namespace longspan::testing
