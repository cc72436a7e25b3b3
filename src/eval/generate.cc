#include "eval/generate.h"

#include <algorithm>
#include <cstdio>

#include "core/check.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/output.h"
#include "data/tokenizer.h"
#include "eval/decoder.h"
#include "eval/sampler.h"
#include "model/generation_config.h"
#include "train/checkpoint.h"
#include "train/job.h"
#include "train/memory_budget.h"
#include "train/weights.h"

namespace longspan {
namespace {

std::string ReadPrompt(const GenerateConfig& config) {
  Require(ExitCode::kUsage, config.prompt.empty() || config.prompt_path.empty(),
          "prompt and prompt_path are both given; leave one out");
  return config.prompt_path.empty() ? config.prompt : ReadTextFile(config.prompt_path);
}

std::vector<int32_t> EncodePrompt(const GenerateConfig& config, const Tokenizer& tokenizer) {
  const std::string text = ReadPrompt(config);
  const std::span<const int32_t> prefix = tokenizer.document_prefix();
  std::vector<int32_t> ids(prefix.begin(), prefix.end());
  const std::vector<int32_t> encoded =
      config.prompt_special_tokens ? tokenizer.EncodeWithSpecialTokens(text) : tokenizer.Encode(text);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  Require(ExitCode::kUsage, !ids.empty(),
          "the prompt is empty and this tokenizer begins no text by itself; give prompt or prompt_path");
  return ids;
}

// What the weights take, and the cache.
std::map<std::string, int64_t> MemoryByName(const Job& job) {
  const std::unique_ptr<Backend> dry = MakeDryBackend(static_cast<int>(job.config.threads_per_rank));
  const ShardedWeights weights(MakeParamTable(job.model), job.dtype, ShardedWeights::Moments::kNoGradients,
                               dry.get());
  std::map<std::string, int64_t> memory;
  for (const auto& [name, bytes] : weights.memory().peak_by_name()) memory[name] = bytes;
  memory["keys and values"] = Decoder::CacheBytes(job.model, job.model_options());
  return memory;
}

}  // namespace

void Generate(const GenerateConfig& config) {
  Job job = OpenTrainedModel(config.run);
  const std::vector<int32_t> prompt = EncodePrompt(config, *job.tokenizer);
  const std::vector<int32_t> stops = EosTokens(job.model_directory, job.model.vocab_size);
  job.config.max_target_length = static_cast<int64_t>(prompt.size()) + config.max_new_tokens;
  job.config.context_parallel_layout = Name(LayoutKind::kContiguous);
  job = PrepareJobWithoutText(std::move(job));
  Require(ExitCode::kUsage, job.mask.kind != MaskKind::kFull && job.mask.kind != MaskKind::kPrefix,
          "attention_mask={} lets a row see what comes behind it, so no text can go on under it",
          job.config.attention_mask);
  RequireMemory(job, MemoryByName(job));

  const std::unique_ptr<Backend> backend = MakeCpuBackend(static_cast<int>(job.config.threads_per_rank));
  ShardedWeights weights(MakeParamTable(job.model), job.dtype, ShardedWeights::Moments::kNoGradients,
                         backend.get());
  LoadModelWeights(job.model_directory, weights);
  const ModelOptions options = job.model_options();
  Decoder decoder(job.model, options, *backend, weights);
  Sampler sampler({.temperature = config.temperature,
                   .top_k = config.top_k,
                   .top_p = config.top_p,
                   .seed = static_cast<uint64_t>(config.seed)});
  TokenStream text(*job.tokenizer);

  const double start = Now();
  std::span<const float> logits = decoder.Read(prompt);
  const double read = Now();
  int64_t generated = 0;
  while (generated < config.max_new_tokens) {
    const int32_t token = sampler.Next(logits);
    ++generated;
    if (std::ranges::find(stops, token) != stops.end()) break;
    Answer(text.Next(token));
    if (generated < config.max_new_tokens) logits = decoder.Read({&token, 1});
  }
  Answer(text.Finish() + "\n");
  const double end = Now();
  fmt::print(stderr,
             "longspan: prompt of {} tokens in {:.2f} s, {:.0f} tokens/s; {} new ones in {:.2f} s, {:.1f} "
             "tokens/s\n",
             prompt.size(), read - start, static_cast<double>(prompt.size()) / (read - start), generated,
             end - read, static_cast<double>(generated) / (end - read));
}

}  // namespace longspan
