#include "data/token_file.h"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/check.h"
#include "data/token_file_format.h"
#include "data/tokenizer.h"

namespace longspan {
namespace token_file {

uint32_t Crc32(uint32_t check, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(crc32_z(check, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

uint32_t FooterCheck(const Footer& footer) {
  return Crc32(0, std::as_bytes(std::span(&footer, 1)).first(offsetof(Footer, footer_check)));
}

}  // namespace token_file

namespace {

using token_file::Footer, token_file::kBlockBytes, token_file::Padded, token_file::Start;

class TokenFileCorpus final : public Corpus {
 public:
  explicit TokenFileCorpus(const std::string& path) : path_(path), file_(path) {
    ReadFooter();
    FindSections();
    CheckIndex();
    counts_.files = 1;
  }

  int64_t num_documents() const override { return static_cast<int64_t>(footer_.num_documents); }
  int64_t num_tokens(int64_t document) const override {
    return static_cast<int64_t>(ends_[At(document)] - Begin(document));
  }

  void ReadTokens(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    const uint64_t first = CheckedBegin(document, begin, out.size());
    if (out.empty()) return;
    CheckBlocks(first * footer_.id_bytes, (first + out.size()) * footer_.id_bytes);
    if (footer_.id_bytes == 4) {
      std::memcpy(out.data(), data_.data() + first * 4, out.size_bytes());
    } else {
      const auto* ids = reinterpret_cast<const uint16_t*>(data_.data()) + first;
      std::copy_n(ids, out.size(), out.begin());
    }
  }

  void ReadLabels(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    ReadTokens(document, begin, out);
    if (footer_.has_mask == 0 || out.empty()) return;
    const uint64_t first = CheckedBegin(document, begin, out.size());
    CheckBlocks(mask_begin_ + first / 8, mask_begin_ + (first + out.size() - 1) / 8 + 1);
    const std::byte* mask = data_.data() + mask_begin_;
    for (size_t i = 0; i < out.size(); ++i) {
      const uint64_t place = first + i;
      if ((mask[place / 8] >> place % 8 & std::byte{1}) == std::byte{0}) out[i] = kIgnoreTarget;
    }
  }

  std::string DocumentName(int64_t document) const override {
    const uint32_t file = places_[2 * At(document)], line = places_[2 * At(document) + 1];
    const uint64_t begin = file == 0 ? 0 : name_ends_[file - 1];
    const std::string_view name = names_.substr(begin, name_ends_[file] - begin);
    return line == 0 ? fmt::format("{} ({})", name, path_) : fmt::format("{}:{} ({})", name, line, path_);
  }

  FileCounts file_counts() const override { return counts_; }
  const Footer& footer() const { return footer_; }

 private:
  size_t At(int64_t document) const {
    CHECK(document >= 0 && document < num_documents());
    return static_cast<size_t>(document);
  }
  uint64_t Begin(int64_t document) const { return document == 0 ? 0 : ends_[At(document) - 1]; }
  // The place of a document's token in the file.
  uint64_t CheckedBegin(int64_t document, int64_t begin, size_t size) const {
    const int64_t tokens = num_tokens(document);
    CHECK(begin >= 0 && begin <= tokens && static_cast<int64_t>(size) <= tokens - begin);
    return Begin(document) + static_cast<uint64_t>(begin);
  }

  [[noreturn]] void Damaged(const std::string& reason) const {
    throw Error(
        fmt::format("{} is no whole token file: {}; copy it again, or make it anew with `longspan tokenize`",
                    path_, reason));
  }

  void ReadFooter();
  void FindSections();
  void CheckIndex() const;
  void CheckBlocks(uint64_t begin, uint64_t end) const;  // bytes of data_
  void CheckBlock(uint64_t block) const;

  const std::string path_;
  const MappedFile file_;
  Footer footer_;
  FileCounts counts_;
  uint64_t mask_begin_ = 0;           // in data_
  std::span<const std::byte> data_;   // ids and mask
  std::span<const std::byte> index_;  // what follows, up to the footer
  std::span<const uint32_t> checks_, places_;
  std::span<const uint64_t> ends_, name_ends_;
  std::string_view names_;
  mutable std::vector<std::atomic<bool>> is_checked_;  // by block
};

void TokenFileCorpus::ReadFooter() {
  const std::span<const std::byte> bytes = file_.bytes();
  Start start;
  if (bytes.size() < sizeof(start)) Damaged("it is too short");
  std::memcpy(&start, bytes.data(), sizeof(start));
  if (start.magic != token_file::kMagic) Damaged("it doesn't begin like one");
  Require(start.version == token_file::kVersion,
          "{} is a token file of version {}, and this program reads version {}; make it anew with `longspan "
          "tokenize`",
          path_, start.version, token_file::kVersion);
  if (bytes.size() < sizeof(start) + sizeof(footer_)) Damaged("it is too short");
  std::memcpy(&footer_, bytes.data() + bytes.size() - sizeof(footer_), sizeof(footer_));
  if (footer_.footer_check != token_file::FooterCheck(footer_)) Damaged("its end is cut off or damaged");
}

void TokenFileCorpus::FindSections() {
  const uint64_t size = file_.bytes().size();
  const Footer& f = footer_;
  // So that nothing below overflows.
  if (f.num_tokens > size || f.num_documents > size || f.num_files > size || f.names_bytes > size ||
      (f.id_bytes != 2 && f.id_bytes != 4) || f.has_mask > 1 || f.vocab_size > uint64_t{1} << 31)
    Damaged("its numbers do not fit together");
  const std::byte* at = file_.bytes().data() + sizeof(Start);
  mask_begin_ = Padded(f.num_tokens * f.id_bytes);
  const uint64_t data_bytes = mask_begin_ + (f.has_mask != 0 ? Padded((f.num_tokens + 7) / 8) : 0);
  const uint64_t num_blocks = (data_bytes + kBlockBytes - 1) / kBlockBytes;
  const uint64_t index_bytes =
      Padded(num_blocks * 4) + f.num_documents * 16 + f.num_files * 8 + Padded(f.names_bytes);
  if (size != sizeof(Start) + data_bytes + index_bytes + sizeof(Footer))
    Damaged(fmt::format("it has {} bytes and should have {}", size,
                        sizeof(Start) + data_bytes + index_bytes + sizeof(Footer)));

  const auto take = [&]<class T>(uint64_t count, std::span<const T>* section) {
    *section = {reinterpret_cast<const T*>(at), count};
    at += Padded(count * sizeof(T));
  };
  take(data_bytes, &data_);
  index_ = {at, index_bytes};
  take(num_blocks, &checks_);
  take(f.num_documents, &ends_);
  take(2 * f.num_documents, &places_);
  take(f.num_files, &name_ends_);
  names_ = {reinterpret_cast<const char*>(at), f.names_bytes};
  is_checked_ = std::vector<std::atomic<bool>>(num_blocks);
}

void TokenFileCorpus::CheckIndex() const {
  if (token_file::Crc32(0, index_) != footer_.index_check) Damaged("its list of documents is damaged");
  uint64_t end = 0;
  bool fits = true;
  for (size_t i = 0; i < ends_.size(); ++i) {
    fits = fits && ends_[i] > end && places_[2 * i] < name_ends_.size();
    end = ends_[i];
  }
  fits = fits && end == footer_.num_tokens;
  end = 0;
  for (const uint64_t name_end : name_ends_) {
    fits = fits && name_end >= end;
    end = name_end;
  }
  if (!fits || end != footer_.names_bytes) Damaged("its list of documents does not fit together");
}

void TokenFileCorpus::CheckBlocks(uint64_t begin, uint64_t end) const {
  for (uint64_t block = begin / kBlockBytes; block * kBlockBytes < end; ++block)
    if (!is_checked_[block].load(std::memory_order_relaxed)) CheckBlock(block);
}

void TokenFileCorpus::CheckBlock(uint64_t block) const {
  const uint64_t begin = block * kBlockBytes;
  const std::span<const std::byte> bytes = data_.subspan(begin, std::min(kBlockBytes, data_.size() - begin));
  if (token_file::Crc32(0, bytes) != checks_[block])
    Damaged(fmt::format("the {} bytes at {} are damaged", bytes.size(), sizeof(Start) + begin));
  // Whoever reads an id takes a row of the embedding by it.
  const uint64_t ids_end = std::min(begin + bytes.size(), footer_.num_tokens * footer_.id_bytes);
  uint64_t largest = 0;
  const auto find_largest = [&]<class T>(T) {
    const auto* ids = reinterpret_cast<const T*>(bytes.data());
    for (uint64_t i = 0; begin + i * sizeof(T) < ids_end; ++i) largest = std::max<uint64_t>(largest, ids[i]);
  };
  if (footer_.id_bytes == 2)
    find_largest(uint16_t{});
  else
    find_largest(uint32_t{});
  if (largest >= footer_.vocab_size)
    Damaged(fmt::format("it has the id {}, but its vocabulary ends at {}", largest, footer_.vocab_size));
  is_checked_[block].store(true, std::memory_order_relaxed);
}

}  // namespace

bool IsTokenFile(const std::string& path, bool in_folder) {
  if (path.ends_with(".tokens")) return true;
  if (in_folder || !IsRegularFile(path)) return false;
  const MappedFile file(path);
  return file.text().starts_with(std::string_view(token_file::kMagic.data(), token_file::kMagic.size()));
}

std::unique_ptr<Corpus> OpenTokenFile(const std::string& path, const Tokenizer& tokenizer,
                                      int64_t vocab_size) {
  auto corpus = std::make_unique<TokenFileCorpus>(path);
  const auto its_vocabulary = static_cast<int64_t>(corpus->footer().vocab_size);
  Require(
      its_vocabulary <= vocab_size,
      "{} was made with a tokenizer of {} ids, but the model's vocab_size is {}; take the tokenizer of that "
      "model, or a model with vocab_size of at least {}",
      path, its_vocabulary, vocab_size, its_vocabulary);
  const uint64_t fingerprint = tokenizer.IsBytes() ? 0 : TokenizerFingerprint(tokenizer);
  Require(
      fingerprint == 0 || fingerprint == corpus->footer().fingerprint,
      "{} was made with another tokenizer than the model's: their tokens differ; make it anew with `longspan "
      "tokenize`, or give the one it was made with as tokenizer_path",
      path);
  return corpus;
}

}  // namespace longspan
