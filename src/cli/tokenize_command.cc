#include "cli/tokenize_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/data_keys.h"
#include "cli/help.h"
#include "core/output.h"

namespace longspan {

KeyList TokenizeKeys(TokenizeConfig& config) {
  KeyList keys;
  keys.Group("Input and output");
  keys.Add("data_path", &config.data_path,
           "A text file, a JSONL file of `text` or `input_ids`, either compressed (.gz, .zst), or a folder "
           "of such "
           "files.")
      .required = true;
  keys.Add("tokenizer_path", &config.tokenizer_path,
           "What makes ids of text: a directory with a tokenizer, or a tokenizer.json, *.tiktoken or "
           "SentencePiece "
           "*.model.")
      .required = true;
  keys.Add("tokenizer_pattern", &config.tokenizer_pattern,
           "For a *.tiktoken: the name of its encoding or a regular expression; empty: it is named after the "
           "encoding.");
  keys.Add("output", &config.output,
           "The file to write, which must not be there yet; call a token file *.tokens.")
      .required = true;
  keys.Add(
      "format", &config.format,
      "longspan: a token file, a data_path for training; u32: the ids of all documents one behind the other, "
      "32-bit and little-endian, and nothing else.",
      {}, {"longspan", "u32"});
  keys.Add("threads", &config.threads, "Threads that encode; 0: one a core.", Between(0, 4096));
  keys.Group("Folders");
  AddFolderKeys(keys, config.data_options);
  return keys;
}

std::string TokenizeSummary(const TokenizeConfig& config, const TokenizeReport& report) {
  std::string text;
  const auto line = [&](const char* title, const std::string& value) {
    text += fmt::format("{:<9} {}\n", title, value);
  };
  const FileCounts& files = report.files;
  const auto megabytes = static_cast<double>(files.text_bytes) / 1e6;
  std::string read = fmt::format("{} read", files.files);
  const auto also = [&](int64_t n, const char* what) {
    if (n > 0) read += fmt::format(", {} {}", n, what);
  };
  also(files.left_out, "left out by data_path_filter");
  also(files.binary, "binary skipped");
  also(files.not_utf8, "skipped that are not UTF-8");
  also(files.mended, "with bytes replaced that are not UTF-8");
  line("files", read);
  line("documents", fmt::format("{}", report.documents));
  line("text", fmt::format("{:.1f} MB", megabytes));
  line("tokens",
       fmt::format("{}, {:.2f} bytes of text each", report.tokens,
                   static_cast<double>(files.text_bytes) / static_cast<double>(report.tokens)) +
           (report.ignored_tokens > 0 ? fmt::format("; {} are no targets", report.ignored_tokens) : ""));
  line("speed",
       fmt::format("{:.1f} MB/s in {:.1f} s, {:.1f} MB/s a core", megabytes / std::max(report.seconds, 1e-3),
                   report.seconds, megabytes / std::max(report.core_seconds, 1e-3)));
  line("output", fmt::format("{}: {:.1f} MB, ids of {} bits", config.output,
                             static_cast<double>(report.output_bytes) / 1e6, 8 * report.id_bytes));
  return text;
}

void TokenizeCommand(std::span<const std::string> arguments) {
  TokenizeConfig config;
  const KeyList keys = TokenizeKeys(config);
  if (WantsHelp(arguments))
    return Answer(
        CommandHelp("tokenize",
                    "Writes the token ids of text to a file: documents as training sees them, each with "
                    "what the tokenizer puts around one.",
                    keys));
  LoadKeys("tokenize", keys, arguments);
  const TokenizeReport report = Tokenize(config);
  Show(TokenizeSummary(config, report));
}

}  // namespace longspan
