#include "fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/keys.h"
#include "core/check.h"
#include "core/file.h"
#include "core/target.h"
#include "data/jsonl.h"
#include "data/token_file.h"
#include "data/token_file_format.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"
#include "model/config.h"
#include "support/files.h"
#include "support/safetensors.h"
#include "train/checksums.h"
#include "train/safetensors.h"

namespace longspan::fuzz {
namespace {

constexpr int64_t kMaxElements = 1 << 16;  // of a tensor that is read

// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("input", 0)) { CHECK(fd_ >= 0); }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void Write(std::string_view text) const {
    CHECK(ftruncate(fd_, 0) == 0);
    CHECK(pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

 private:
  const int fd_;
};

// The path of a file that holds `input`.
std::string FileOf(std::string_view input) {
  static const MemoryFile file;
  file.Write(input);
  return file.path();
}

// Every tensor of a reader or directory can be read as it is stored, and those of floats as floats.
template <class Files>
void ReadAll(const Files& files, const std::string& name, const SafetensorsReader::Entry& entry) {
  const int64_t n = std::min(kMaxElements, entry.num_elements());
  CHECK(n >= 0 && entry.begin >= 0);
  std::vector<std::byte> bytes(static_cast<size_t>(n * entry.type->bytes));
  files.ReadStored(name, entry.num_elements() - n, bytes);
  if (entry.type->kind != ElementKind::kFloat) return;
  std::vector<float> values(static_cast<size_t>(n));
  files.ReadFloat32(name, 0, values);
}

void Safetensors(std::string_view input) {
  const SafetensorsReader reader(FileOf(input));
  int64_t data_bytes = 0;
  for (const auto& [name, entry] : reader.entries()) {
    ReadAll(reader, name, entry);
    data_bytes += entry.end - entry.begin;
  }
  CHECK(data_bytes <= static_cast<int64_t>(input.size()));
}

// The index of two shards, with tensors a and b, and c.
class Shards {
 public:
  Shards() {
    float value = 1;
    const Tensor values(&value, DType::kFloat32, {1});
    WriteSafetensors(directory_.path(), "first", {{"a", values, {1}}, {"b", values, {1}}}, DType::kFloat32,
                     99);
    WriteSafetensors(directory_.path(), "second", {{"c", values, {1}}}, DType::kBFloat16, 99);
    std::filesystem::create_symlink(file_.path(), directory_ / "model.safetensors.index.json");
  }
  void Open(std::string_view index) const {
    file_.Write(index);
    const SafetensorsDirectory files(directory_.path(), "model");
    CHECK(files.Names().size() <= 3);
    for (const std::string& name : files.Names()) ReadAll(files, name, files.At(name));
  }

 private:
  const MemoryFile file_;
  const testing::TemporaryDirectory directory_;
};

void SafetensorsIndex(std::string_view input) {
  static const Shards shards;
  shards.Open(input);
}

void ChecksumsJson(std::string_view input) {
  const Checksums sums = ParseChecksums(input, "checksums.json");
  for (const auto& [name, sum] : sums) CHECK(!name.empty() && name.find('/') == name.npos && name != "..");
  CHECK(ParseChecksums(WriteChecksums(sums), "written") == sums);
}

void TokenizerJson(std::string_view input) {
  const std::unique_ptr<Tokenizer> tokenizer = ParseTokenizerJson(input, "tokenizer.json");
  std::string every_byte;
  for (int i = 1; i < 128; ++i) every_byte += static_cast<char>(i);
  for (const std::string& text :
       {std::string(), std::string("Hello, world! It's 1234 o'clock.\n\n  x"),
        std::string("<s>a\u00e9\u0301\u4e2d\U0001f600\u200d"), every_byte, std::string(300, 'a')}) {
    try {
      const std::vector<int32_t> ids = tokenizer->Encode(text);
      for (const int32_t id : ids) CHECK(id >= 0 && id < tokenizer->vocab_size());
      tokenizer->Decode(ids);
    } catch (const Error&) {  // of this text
    }
  }
}

void Config(std::string_view input) {
  const ModelConfig config = ParseModelConfig(input, "config.json");
  const std::string kept = WriteModelConfig(config, input, DType::kBFloat16);
  CHECK(ParseModelConfig(kept, "kept") == config);
  CHECK(ParseModelConfig(WriteModelConfig(config, "", DType::kFloat32), "written") == config);
}

// A configuration with a key of each kind.
struct Settings {
  std::string text, choice = "one";
  int64_t integer = 3;
  double number = 0.5;
  bool flag = false;
  ValueMap map = {{"", "one"}};

  KeyList Keys() {
    KeyList keys;
    keys.Add("text", &text, "Any.");
    keys.Add("choice", &choice, "One of two.", {}, {"one", "two"});
    keys.Add("integer", &integer, "A number.", Between(-5, 1e9));
    keys.Add("number", &number, "Another.", Or(-1, Between(0, 1)));
    keys.Add("flag", &flag, "Yes or no.");
    keys.Add("map", &map, "By name.", {}, {"one", "two"});
    return keys;
  }
};

void Recipe(std::string_view input) {
  Settings settings, again;
  const std::string path = FileOf(input);
  LoadKeys("fuzz", settings.Keys(), std::vector<std::string>{path});
  const std::string written = WriteRecipe(settings.Keys());
  LoadKeys("fuzz", again.Keys(), std::vector<std::string>{FileOf(written)});
  CHECK(WriteRecipe(again.Keys()) == written);
}

void JsonLine(std::string_view input) {
  constexpr int64_t kVocabulary = 1000;
  const JsonlDocument document = ParseJsonlLine(input, kVocabulary, "line");
  CHECK(!document.text || document.ids.empty());
  for (const int32_t id : document.ids) CHECK(id >= 0 && id < kVocabulary);
  CHECK(!document.labels || document.labels->size() == document.ids.size());
}

// The input with the checksums that its bytes should have, as nothing behind a wrong one would ever be
// reached.
std::string WithChecks(std::string_view input) {
  using namespace token_file;
  std::string file(input);
  if (file.size() < sizeof(Start) + sizeof(Footer)) return file;
  const size_t end = file.size() - sizeof(Footer);
  const auto check = [&](uint64_t from, uint64_t to) {
    return Crc32(0, std::as_bytes(std::span(file)).subspan(from, to - from));
  };
  Footer footer;
  std::memcpy(&footer, file.data() + end, sizeof(footer));
  const uint64_t ids_bytes = Padded(footer.num_tokens * footer.id_bytes);
  const uint64_t mask_bytes = footer.has_mask != 0 ? Padded((footer.num_tokens + 7) / 8) : 0;
  if (ids_bytes <= end && mask_bytes <= end && sizeof(Start) + ids_bytes + mask_bytes <= end) {
    const uint64_t index = sizeof(Start) + ids_bytes + mask_bytes;
    uint64_t place = index;
    for (uint64_t block = sizeof(Start); block < index && place + sizeof(uint32_t) <= end;
         block += kBlockBytes) {
      const uint32_t of_block = check(block, std::min(index, block + kBlockBytes));
      std::memcpy(file.data() + place, &of_block, sizeof(of_block));
      place += sizeof(of_block);
    }
    footer.index_check = check(index, end);
  }
  footer.footer_check = FooterCheck(footer);
  std::memcpy(file.data() + end, &footer, sizeof(footer));
  return file;
}

// Every document of a token file.
void ReadTokenFile(std::string_view input) {
  constexpr int64_t kVocabulary = 100000;
  const std::unique_ptr<Corpus> corpus = OpenTokenFile(FileOf(input), *MakeByteTokenizer(), kVocabulary);
  int64_t num_tokens = 0;
  for (int64_t document = 0; document < corpus->num_documents(); ++document) {
    CHECK(corpus->num_tokens(document) > 0 && !corpus->DocumentName(document).empty());
    num_tokens += corpus->num_tokens(document);
    CHECK(num_tokens <= static_cast<int64_t>(input.size()));
    std::vector<int32_t> ids(static_cast<size_t>(corpus->num_tokens(document))), labels(ids.size());
    corpus->ReadTokens(document, 0, ids);
    corpus->ReadLabels(document, 0, labels);
    for (size_t i = 0; i < ids.size(); ++i) {
      CHECK(ids[i] >= 0 && ids[i] < kVocabulary);
      CHECK(labels[i] == ids[i] || labels[i] == kIgnoreTarget);
    }
  }
  CHECK(num_tokens == corpus->total_tokens());
}

void TokenFile(std::string_view input) {
  try {
    ReadTokenFile(WithChecks(input));
  } catch (const Error&) {  // for another reason than a checksum
  }
  ReadTokenFile(input);
}

template <void (*read)(std::string_view)>
bool Accepts(std::string_view input) {
  try {
    read(input);
    return true;
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).size() > 0);
    return false;
  }
}

constexpr Target kTargets[] = {
    {"safetensors", Accepts<Safetensors>},
    {"safetensors_index", Accepts<SafetensorsIndex>},
    {"checksums", Accepts<ChecksumsJson>},
    {"tokenizer_json", Accepts<TokenizerJson>},
    {"config", Accepts<Config>},
    {"recipe", Accepts<Recipe>},
    {"jsonl", Accepts<JsonLine>},
    {"token_file", Accepts<TokenFile>},
};

}  // namespace

std::span<const Target> Targets() { return kTargets; }

}  // namespace longspan::fuzz
