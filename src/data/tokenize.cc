#include "data/tokenize.h"

#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/progress_line.h"
#include "core/target.h"
#include "data/encode.h"
#include "data/files.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace longspan {
namespace {

// A file of ids in one of the formats.
class Output {
 public:
  virtual ~Output() = default;
  virtual void Add(const EncodedDocument& document) = 0;
  virtual void Finish(std::span<const std::string> names) = 0;
  virtual int64_t size() const = 0;  // bytes written
};

class TokenFileOutput final : public Output {
 public:
  TokenFileOutput(const std::string& path, const Tokenizer& tokenizer)
      : writer_(path, tokenizer.vocab_size(), TokenizerFingerprint(tokenizer)) {}
  void Add(const EncodedDocument& document) override {
    writer_.Add(document.ids, Mask(document), document.name, document.line);
  }
  void Finish(std::span<const std::string> names) override { writer_.Finish(names); }
  int64_t size() const override { return writer_.size(); }

 private:
  // Whether each id counts as a target; empty: all do.
  static std::vector<bool> Mask(const EncodedDocument& document) {
    std::vector<bool> mask;
    if (!document.labels) return mask;
    mask.reserve(document.ids.size());
    for (size_t i = 0; i < document.ids.size(); ++i) {
      const int32_t label = (*document.labels)[i];
      Require(label == kIgnoreTarget || label == document.ids[i],
              "{}: labels[{}] is {} but input_ids[{}] is {}; a token file keeps which ids count, not other "
              "labels: "
              "train on the JSONL itself",
              document.where, i, label, i, document.ids[i]);
      mask.push_back(label != kIgnoreTarget);
    }
    return mask;
  }

  TokenFileWriter writer_;
};

class PlainOutput final : public Output {
 public:
  explicit PlainOutput(const std::string& path) : writer_(path) {}
  void Add(const EncodedDocument& document) override {
    Require(!document.labels, "{}: format=u32 has no place for loss_mask or labels; take format=longspan",
            document.where);
    ids_.insert(ids_.end(), document.ids.begin(), document.ids.end());
    if (ids_.size() >= kIdsAtOnce) Flush();
  }
  void Finish(std::span<const std::string>) override {
    Flush();
    writer_.Finish();
  }
  int64_t size() const override { return writer_.size(); }

 private:
  static constexpr size_t kIdsAtOnce = size_t{1} << 16;
  void Flush() {
    writer_.Write(ids_.data(), ids_.size() * sizeof(int32_t));
    ids_.clear();
  }

  FileWriter writer_;
  std::vector<int32_t> ids_;
};

// Of this process so far, all threads together.
double CoreSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

TokenizeReport Tokenize(const TokenizeConfig& config) {
  Require(ExitCode::kUsage, !Exists(config.output),
          "output {} is there already; remove it or choose another name", config.output);
  const std::unique_ptr<Tokenizer> tokenizer = OpenTokenizer(config.tokenizer_path, config.tokenizer_pattern);
  RequireFolderFor(config.data_options, {config.data_path});
  const DataFiles list = ListDataFiles(config.data_path, config.data_options.data_path_filter);
  for (const DataFile& file : list.files)
    Require(!IsTokenFile(file.path, list.is_folder), "{} is a token file already; leave it out{}", file.path,
            list.is_folder ? " (data_path_filter=!*.tokens)" : "");

  const std::string beside = config.output + ".tmp";
  RemoveFile(beside);  // what a killed run left
  std::unique_ptr<Output> output;
  if (config.format == "u32")
    output = std::make_unique<PlainOutput>(beside);
  else
    output = std::make_unique<TokenFileOutput>(beside, *tokenizer);

  TokenizeReport report;
  const double begin = Now();
  const double core_seconds = CoreSeconds();
  DocumentSource source(list, list.files, config.data_options, /*takes_any_bytes=*/false);
  ProgressLine progress("tokenizing " + config.data_path, kMegabytes, list.total_bytes());
  EncodeDocuments(
      source, *tokenizer, tokenizer->vocab_size(), config.threads,
      [&](EncodedDocument document) {
        ++report.documents;
        report.tokens += static_cast<int64_t>(document.ids.size());
        if (document.labels)
          report.ignored_tokens +=
              std::count(document.labels->begin(), document.labels->end(), kIgnoreTarget);
        output->Add(document);
      },
      [&](int64_t bytes) { progress.Update(bytes); });
  report.files = source.counts();
  report.files.left_out = list.num_left_out;
  Require(report.documents > 0, "{} has no tokens ({} binary files were left out)", config.data_path,
          report.files.binary);
  output->Finish(source.names());
  RenameFile(beside, config.output);
  report.output_bytes = output->size();
  report.id_bytes = config.format == "u32" ? 4 : TokenFileIdBytes(tokenizer->vocab_size());
  report.seconds = Now() - begin;
  report.core_seconds = CoreSeconds() - core_seconds;
  return report;
}

}  // namespace longspan
