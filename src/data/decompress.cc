#include "data/decompress.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "core/check.h"
#include "core/file.h"

namespace longspan {
namespace {

constexpr std::string_view kGzip = ".gz", kZstd = ".zst";
constexpr size_t kFirstBytes = size_t{1} << 20;  // of a text whose length is not known yet

[[noreturn]] void ThrowDamaged(const std::string& path, std::string_view reason) {
  throw Error(fmt::format("'{}' cannot be decompressed: {}; make or copy it again", path, reason));
}

class GzipDecompressor final : public Decompressor {
 public:
  explicit GzipDecompressor(const std::string& path) : path_(path), file_(path), rest_(file_.text()) {
    constexpr int kOnlyGzip = MAX_WBITS + 16;
    Require(ExitCode::kResource, inflateInit2(&stream_, kOnlyGzip) == Z_OK,
            "out of memory to decompress '{}'", path);
  }
  ~GzipDecompressor() override { inflateEnd(&stream_); }

  size_t Read(std::span<char> out) override {
    size_t filled = 0;
    while (filled < out.size() && !at_end_) {
      // Lengths are 32-bit in zlib.
      const size_t in = std::min(rest_.size(), kMostAtOnce),
                   room = std::min(out.size() - filled, kMostAtOnce);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
      stream_.avail_in = static_cast<uInt>(in);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      rest_.remove_prefix(in - stream_.avail_in);
      filled += room - stream_.avail_out;
      if (result == Z_STREAM_END) {
        NextMember();
      } else if (result == Z_BUF_ERROR && rest_.empty()) {
        ThrowDamaged(path_, "it ends before its text does");
      } else if (result != Z_OK) {
        ThrowDamaged(path_, stream_.msg != nullptr ? stream_.msg : zError(result));
      }
    }
    return filled;
  }

  int64_t consumed() const override { return static_cast<int64_t>(file_.text().size() - rest_.size()); }

 private:
  static constexpr size_t kMostAtOnce = size_t{1} << 30;

  // Another member, or zeros, which programs that write whole blocks leave at the end.
  void NextMember() {
    if (rest_.find_first_not_of('\0') == rest_.npos) {
      rest_ = {};
      at_end_ = true;
    } else if (inflateReset(&stream_) != Z_OK) {
      ThrowDamaged(path_, "zlib cannot go on");
    }
  }

  std::string path_;
  MappedFile file_;
  std::string_view rest_;
  z_stream stream_{};
  bool at_end_ = false;
};

class ZstdDecompressor final : public Decompressor {
 public:
  explicit ZstdDecompressor(const std::string& path)
      : path_(path),
        file_(path),
        stream_(ZSTD_createDStream()),
        in_{file_.text().data(), file_.text().size(), 0} {
    Require(ExitCode::kResource, stream_ != nullptr, "out of memory to decompress '{}'", path);
    // Windows of any size that the format's programs write (--long=31).
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax,
                           ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }

  size_t Read(std::span<char> out) override {
    ZSTD_outBuffer buffer{out.data(), out.size(), 0};
    while (buffer.pos < buffer.size) {
      if (in_.pos == in_.size && is_whole_) break;
      const size_t before = buffer.pos, used = in_.pos;
      const size_t result = ZSTD_decompressStream(stream_.get(), &buffer, &in_);
      if (ZSTD_isError(result)) ThrowDamaged(path_, ZSTD_getErrorName(result));
      is_whole_ = result == 0;  // a frame has just ended
      if (!is_whole_ && buffer.pos == before && in_.pos == used)
        ThrowDamaged(path_, "it ends before its text does");
    }
    return buffer.pos;
  }

  int64_t consumed() const override { return static_cast<int64_t>(in_.pos); }

 private:
  struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  std::string path_;
  MappedFile file_;
  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
  ZSTD_inBuffer in_;
  bool is_whole_ = false;
};

}  // namespace

bool IsCompressed(std::string_view path) { return path.ends_with(kGzip) || path.ends_with(kZstd); }

std::string_view WithoutCompression(std::string_view path) {
  for (const std::string_view suffix : {kGzip, kZstd})
    if (path.ends_with(suffix)) return path.substr(0, path.size() - suffix.size());
  return path;
}

std::unique_ptr<Decompressor> OpenCompressed(const std::string& path) {
  CHECK(IsCompressed(path));
  if (path.ends_with(kGzip)) return std::make_unique<GzipDecompressor>(path);
  return std::make_unique<ZstdDecompressor>(path);
}

std::string ReadAll(Decompressor& decompressor, const std::string& path, int64_t max_bytes) {
  const auto most = static_cast<size_t>(max_bytes);
  std::string text;
  for (size_t size = 0;;) {
    text.resize(std::min(most + 1, std::max(kFirstBytes, 2 * size)));
    const size_t n = decompressor.Read(std::span(text).subspan(size));
    size += n;
    Require(
        ExitCode::kResource, size <= most,
        "'{}' holds a text of more than {} MiB, a quarter of the memory that is free; split it into smaller "
        "documents",
        path, max_bytes >> 20);
    if (size < text.size()) {
      text.resize(size);
      text.shrink_to_fit();
      return text;
    }
  }
}

}  // namespace longspan
