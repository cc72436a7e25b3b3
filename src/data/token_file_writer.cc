#include <algorithm>
#include <limits>

#include "core/check.h"
#include "data/token_file.h"
#include "data/token_file_format.h"

namespace longspan {

using token_file::Crc32, token_file::Footer, token_file::kBlockBytes;

int64_t TokenFileIdBytes(int64_t vocab_size) {
  return vocab_size <= int64_t{std::numeric_limits<uint16_t>::max()} + 1 ? 2 : 4;
}

TokenFileWriter::TokenFileWriter(const std::string& path, int64_t vocab_size, uint64_t tokenizer_fingerprint)
    : writer_(path),
      vocab_size_(vocab_size),
      fingerprint_(tokenizer_fingerprint),
      id_bytes_(static_cast<size_t>(TokenFileIdBytes(vocab_size))) {
  const token_file::Start start;
  writer_.Write(&start, sizeof(start));
  buffer_.reserve(kBlockBytes);
}

void TokenFileWriter::WriteData(const void* data, size_t size) {
  const char* rest = static_cast<const char*>(data);
  while (size > 0) {
    const size_t n = std::min(size, kBlockBytes - buffer_.size());
    buffer_.insert(buffer_.end(), rest, rest + n);
    rest += n;
    size -= n;
    if (buffer_.size() < kBlockBytes) continue;
    checks_.push_back(Crc32(0, std::as_bytes(std::span(buffer_))));
    writer_.Write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
}

void TokenFileWriter::Add(std::span<const int32_t> ids, const std::vector<bool>& mask, int64_t file,
                          int64_t line) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  CHECK(!ids.empty() && (mask.empty() || mask.size() == ids.size()));
  Require(file <= kMost && line <= kMost, "a token file can name {} files and lines; split the data", kMost);
  AddMask(mask, ids.size());
  num_tokens_ += ids.size();
  ends_.push_back(num_tokens_);
  places_.push_back(static_cast<uint32_t>(file));
  places_.push_back(static_cast<uint32_t>(line));
  if (id_bytes_ == 4) return WriteData(ids.data(), ids.size_bytes());
  narrow_.assign(ids.begin(), ids.end());
  WriteData(narrow_.data(), narrow_.size() * sizeof(uint16_t));
}

void TokenFileWriter::AddMask(const std::vector<bool>& mask, size_t num_ids) {
  const bool all_count = std::all_of(mask.begin(), mask.end(), [](bool counts) { return counts; });
  if (mask_.empty() && all_count) return;
  // Bits of tokens that came before the first mask are 1, and those behind the last token as well until
  // Finish.
  mask_.resize((num_tokens_ + num_ids + 7) / 8, 0xFF);
  for (size_t i = 0; i < mask.size(); ++i) {
    const uint64_t place = num_tokens_ + i;
    if (!mask[i]) mask_[place / 8] &= static_cast<uint8_t>(~(1u << place % 8));
  }
}

void TokenFileWriter::WritePadding() {
  constexpr char kZeros[token_file::kAlignment] = {};
  const auto size = static_cast<uint64_t>(writer_.size()) + buffer_.size();
  WriteData(kZeros, token_file::Padded(size) - size);
}

template <class T>
void TokenFileWriter::WriteIndex(std::span<const T> values) {
  const auto write = [&](const void* data, size_t size) {
    index_check_ = Crc32(index_check_, {static_cast<const std::byte*>(data), size});
    writer_.Write(data, size);
  };
  write(values.data(), values.size_bytes());
  constexpr char kZeros[token_file::kAlignment] = {};
  write(kZeros, token_file::Padded(values.size_bytes()) - values.size_bytes());
}

void TokenFileWriter::Finish(std::span<const std::string> names) {
  WritePadding();
  if (!mask_.empty()) {
    if (num_tokens_ % 8 != 0) mask_.back() &= static_cast<uint8_t>((1u << num_tokens_ % 8) - 1);
    WriteData(mask_.data(), mask_.size());
    WritePadding();
  }
  if (!buffer_.empty()) {
    checks_.push_back(Crc32(0, std::as_bytes(std::span(buffer_))));
    writer_.Write(buffer_.data(), buffer_.size());
  }

  Footer footer;
  footer.num_tokens = num_tokens_;
  footer.num_documents = ends_.size();
  footer.num_files = names.size();
  footer.vocab_size = static_cast<uint64_t>(vocab_size_);
  footer.fingerprint = fingerprint_;
  footer.id_bytes = static_cast<uint32_t>(id_bytes_);
  footer.has_mask = mask_.empty() ? 0 : 1;
  std::vector<uint64_t> name_ends;
  std::string all_names;
  for (const std::string& name : names) {
    all_names += name;
    name_ends.push_back(all_names.size());
  }
  footer.names_bytes = all_names.size();
  WriteIndex(std::span<const uint32_t>(checks_));
  WriteIndex(std::span<const uint64_t>(ends_));
  WriteIndex(std::span<const uint32_t>(places_));
  WriteIndex(std::span<const uint64_t>(name_ends));
  WriteIndex(std::span<const char>(all_names));
  footer.index_check = index_check_;
  footer.footer_check = token_file::FooterCheck(footer);
  writer_.Write(&footer, sizeof(footer));
  writer_.Finish();
}

}  // namespace longspan
