#include "train/job.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>

#include "core/file.h"
#include "core/format.h"
#include "core/machine.h"
#include "core/names.h"
#include "data/files.h"
#include "model/context_extension.h"
#include "train/offloaded_activations.h"
#include "train/placement.h"
#include "train/run_directory.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

// Stands in for a model's tokenizer that cannot be run: ids may be used as they are, text may not.
class UnavailableTokenizer final : public Tokenizer {
 public:
  UnavailableTokenizer(std::string reason, int64_t vocab_size)
      : reason_(std::move(reason)), vocab_size_(vocab_size) {}
  int64_t vocab_size() const override { return vocab_size_; }
  void AppendToken(int32_t, bool, std::string*) const override { Refuse(); }

 private:
  std::vector<int32_t> DoEncode(std::string_view, bool) const override { Refuse(); }
  [[noreturn]] void Refuse() const {
    throw Error(fmt::format(
        "the model's own tokenizer cannot be run: {}; give another as tokenizer_path, or data_path as "
        "JSONL with `input_ids` made with that tokenizer",
        reason_));
  }
  std::string reason_;
  int64_t vocab_size_;
};

void LoadModel(Job& job) {
  const std::string& path = job.config.model_path;
  Require(ExitCode::kUsage, !path.empty(),
          "model_path is not set; give a built-in model ({}) or a Hugging Face model directory",
          fmt::join(BuiltinModelNames(), ", "));
  std::string where = path, text(BuiltinModelJson(path));
  if (text.empty()) {
    const std::vector<std::string_view> names = BuiltinModelNames();
    Require(IsDirectory(path), "model_path {} is neither a directory nor a built-in model{}", path,
            Suggestion(path, names));
    job.model_directory = ModelDirectory(path);
    where = job.model_directory + "/config.json";
    text = ReadTextFile(where);
  }
  job.model_json = OverrideRope(text, where, job.config.rope_theta, job.config.rope_scaling);
  job.model_json = ExtendPositions(job.model_json, where, job.pass_length());
  job.model = ParseModelConfig(job.model_json, where);
  job.config_changes = DescribeChanges(text, job.model_json);
}

// tokenizer_path, else what the model's directory has, else bytes.
void LoadTokenizer(Job& job) {
  const TrainConfig& c = job.config;
  if (!c.tokenizer_path.empty()) {
    job.tokenizer = OpenTokenizer(c.tokenizer_path, c.tokenizer_pattern);
    if (IsDirectory(c.tokenizer_path)) job.tokenizer_directory = c.tokenizer_path;
    return;
  }
  Require(ExitCode::kUsage, c.tokenizer_pattern.empty(),
          "tokenizer_pattern is set but tokenizer_path is not; it is for a tiktoken file there");
  job.tokenizer_directory = job.model_directory;
  const auto has = [&](const char* name) {
    return !job.model_directory.empty() && Exists(job.model_directory + "/" + name);
  };
  if (!has("tokenizer.json") && !has("tokenizer.model") && !has("vocab.json")) {
    job.tokenizer = MakeByteTokenizer();
    return;
  }
  try {
    job.tokenizer = OpenTokenizer(job.model_directory);
  } catch (const Error& e) {
    job.tokenizer = std::make_unique<UnavailableTokenizer>(e.what(), job.model.vocab_size);
  }
}

// Far enough for counts of tokens, and near enough that shares of the sum are neither 0 nor infinite.
constexpr double kLeastWeight = 1e-15, kMostWeight = 1e15;

double ParseWeight(const std::string& text, const std::string& path) {
  double weight = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
  Require(ExitCode::kUsage,
          error == std::errc() && end == text.data() + text.size() && weight >= kLeastWeight &&
              weight <= kMostWeight,
          "data_path: the weight of {} is '{}'; a number from {:g} to {:g} is wanted", path, text,
          kLeastWeight, kMostWeight);
  return weight;
}

void LoadText(Job& job) {
  const TrainConfig& c = job.config;
  Require(ExitCode::kUsage, !c.data_path.empty(),
          "data_path is not set; give a text file, a JSONL file or a folder");
  std::vector<std::string> paths;
  for (const auto& [name, value] : c.data_path) paths.push_back(name.empty() ? value : name);
  paths.push_back(c.eval_data_path);
  RequireFolderFor(c.data_options, paths);
  for (const auto& [name, value] : c.data_path) {
    DataSource source;
    source.path = name.empty() ? value : name;
    if (!name.empty()) source.weight = ParseWeight(value, name);
    source.corpus = OpenCorpus(source.path, *job.tokenizer, job.model.vocab_size, c.data_options);
    job.sources.push_back(std::move(source));
  }
  Require(ExitCode::kUsage, c.eval_interval <= 0 || !c.eval_data_path.empty(),
          "eval_interval is {} but eval_data_path is not set; give the held-out text", c.eval_interval);
  if (c.eval_interval <= 0) return;
  job.eval_corpus = OpenCorpus(c.eval_data_path, *job.tokenizer, job.model.vocab_size, c.data_options);
  bool any_target = false;
  SequenceReader reader = job.MakeEvalReader();
  for (int64_t i = 0; !any_target && reader.position().epoch == 0 && i != c.eval_steps; ++i)
    any_target = reader.Next().num_targets > 0;
  Require(
      any_target,
      "eval_data_path {}: no token of what an evaluation reads is followed by one that counts; give longer "
      "documents or more eval_steps, or look at loss_mask or labels",
      c.eval_data_path);
}

// context_parallel_strategy as one name for each layer kind.
void ResolveStrategies(Job& job) {
  const std::map<std::string, std::string>& request = job.config.context_parallel_strategy;
  std::vector<std::string_view> types;
  for (const LayerKind& kind : job.model.layer_kinds) types.push_back(kind.name);
  for (const auto& [type, name] : request) {
    FindStrategy(name);  // names the nearest one
    Require(ExitCode::kUsage, type.empty() || std::ranges::find(types, type) != types.end(),
            "context_parallel_strategy: the model has no layers of type '{}', but {}{}", type,
            fmt::join(types, " and "), Suggestion(type, types));
  }
  for (const std::string_view type : types) {
    const auto all = request.find(""), its = request.find(std::string(type));
    Require(ExitCode::kUsage, its != request.end() || all != request.end(),
            "context_parallel_strategy: nothing is said of the model's layers of type {}; give all of {}",
            type, fmt::join(types, ", "));
    job.strategies.push_back(its != request.end() ? its->second : all->second);
  }
}

// The strategy that the mesh is made for. usp alone needs both axes; the others go over all ranks of a
// sequence, so ulysses can do with a ring's mesh, but a ring not with that of ulysses.
std::string MeshStrategy(const std::vector<std::string>& strategies) {
  const auto usp = std::ranges::find(strategies, "usp");
  if (usp != strategies.end()) return *usp;
  const auto ring = std::ranges::find_if(strategies, [](const auto& name) { return name != "ulysses"; });
  return ring != strategies.end() ? *ring : strategies.front();
}

void ResolveRanks(Job& job) {
  TrainConfig& c = job.config;
  ResolveStrategies(job);
  MeshRequest request;
  request.ranks = static_cast<int>(c.ranks);
  request.strategy = MeshStrategy(job.strategies);
  request.data_parallelism = static_cast<int>(c.data_parallelism);
  request.fsdp_parallelism = static_cast<int>(c.fsdp_parallelism);
  request.shard_parameters = c.shard_parameters;
  request.context_parallelism = static_cast<int>(c.context_parallelism);
  request.ulysses_parallelism = static_cast<int>(c.ulysses_parallelism);
  request.num_attention_heads = static_cast<int>(job.model.num_attention_heads);
  job.mesh = ResolveMesh(request);
  for (size_t kind = 0; kind < job.strategies.size(); ++kind)
    Require(
        ExitCode::kUsage,
        job.strategies[kind] != "ulysses" || job.mesh.context() <= job.model.num_attention_heads,
        "context_parallel_strategy ulysses deals num_attention_heads {} of {} layers to the {} ranks of a "
        "sequence; it works for at most {}",
        job.model.num_attention_heads, job.model.layer_kinds[kind].name, job.mesh.context(),
        job.model.num_attention_heads);
  c.data_parallelism = job.mesh.data;
  c.fsdp_parallelism = job.mesh.fsdp;
  c.context_parallelism = job.mesh.ring;
  c.ulysses_parallelism = job.mesh.ulysses;
  if (c.threads_per_rank == 0) c.threads_per_rank = std::max<int64_t>(1, NumCores() / c.ranks);
  const int64_t groups = job.mesh.groups();
  if (c.global_batch_size == 0) c.global_batch_size = groups;
  Require(
      ExitCode::kUsage, c.global_batch_size % groups == 0,
      "global_batch_size {} is not a multiple of data_parallelism {}{}; the nearest that work are {} and {}",
      c.global_batch_size, job.mesh.data,
      job.mesh.fsdp == 1 ? "" : fmt::format(" · fsdp_parallelism {}", job.mesh.fsdp),
      c.global_batch_size / groups * groups, (c.global_batch_size / groups + 1) * groups);
}

void ResolveAttention(Job& job) {
  TrainConfig& c = job.config;
  const auto table = MaskTable();
  const auto row =
      std::find_if(table.begin(), table.end(), [&](const MaskRow& r) { return r.name == c.attention_mask; });
  std::vector<std::string_view> names;
  for (const MaskRow& r : table) names.push_back(r.name);
  Require(ExitCode::kUsage, row != table.end(), "attention_mask: no mask is called {}{}", c.attention_mask,
          Suggestion(c.attention_mask, names));
  job.mask.kind = row->kind;
  job.mask.window = c.sliding_window_size;
  job.mask.chunk = c.chunk_attn_window_size;
  job.mask.prefix = c.prefix_length;
  job.mask.sinks = c.attention_sink_tokens;
  const bool windowed = row->kind == MaskKind::kSlidingWindow || row->kind == MaskKind::kSinkWindow;
  Require(ExitCode::kUsage, !windowed || c.sliding_window_size >= 1,
          "attention_mask={} needs sliding_window_size of at least 1 (the query itself counts), got {}",
          c.attention_mask, c.sliding_window_size);
  Require(ExitCode::kUsage, row->kind != MaskKind::kChunked || c.chunk_attn_window_size >= 1,
          "attention_mask=chunked needs chunk_attn_window_size of at least 1, got {}",
          c.chunk_attn_window_size);

  // A size that this mask does not have would do nothing.
  const struct {
    std::string_view key;
    int64_t value;
    bool has_effect;
  } sizes[] = {{"sliding_window_size", c.sliding_window_size, windowed},
               {"chunk_attn_window_size", c.chunk_attn_window_size, row->kind == MaskKind::kChunked},
               {"prefix_length", c.prefix_length, row->kind == MaskKind::kPrefix},
               {"attention_sink_tokens", c.attention_sink_tokens, row->kind == MaskKind::kSinkWindow}};
  for (const auto& size : sizes)
    Require(
        ExitCode::kUsage, size.value == 0 || size.has_effect,
        "{} is {}, which attention_mask={} does not use; leave it out, or set the mask that it belongs to",
        size.key, size.value, c.attention_mask);

  for (const LayerKind& kind : job.model.layer_kinds)
    Require(
        ExitCode::kUsage, kind.sliding_window == 0 || row->kind == MaskKind::kCausal,
        "attention_mask {} does not go with this model, whose {} layers have a causal mask with a sliding "
        "window of {} of their own; leave it out",
        c.attention_mask, kind.name, kind.sliding_window);

  // One long document is balanced by zigzag, many short ones by stripes (docs/parallel.md, "Layouts").
  if (c.context_parallel_layout == "auto") {
    const LayoutKind kind =
        job.mean_document_length() < job.pass_length() / 2 ? LayoutKind::kStriped : LayoutKind::kZigzag;
    c.context_parallel_layout = Name(job.mesh.context() == 1 ? LayoutKind::kContiguous : kind);
  }
  ParseLayoutKind(c.context_parallel_layout);
}

// Of the longest document in `longest`, if one of this corpus is longer.
void FindLonger(const Corpus& corpus, std::pair<int64_t, std::string>& longest) {
  for (int64_t i = 0; i < corpus.num_documents(); ++i)
    if (corpus.num_tokens(i) > longest.first) longest = {corpus.num_tokens(i), corpus.DocumentName(i)};
}

// A document is never divided between passes.
void CheckPasses(const Job& job) {
  if (job.pass_length() == job.config.max_target_length) return;
  std::pair<int64_t, std::string> longest;
  for (const DataSource& source : job.sources) FindLonger(*source.corpus, longest);
  if (job.eval_corpus) FindLonger(*job.eval_corpus, longest);
  if (job.sources.empty()) {
    const int64_t planned = job.EqualDocuments().front().size();
    Require(
        ExitCode::kUsage, planned <= job.config.tokens_per_pass,
        "a document of {} tokens, as is planned with, has to be in one pass of at most tokens_per_pass {}; "
        "give document_length, the tokens of a document in the mean",
        planned, job.config.tokens_per_pass);
  }
  Require(
      ExitCode::kUsage, longest.first <= job.config.tokens_per_pass,
      "tokens_per_pass {} is less than the {} tokens of the document {}, which has to be in one pass; give "
      "at least {}, or shorter documents",
      job.config.tokens_per_pass, longest.first, longest.second, longest.first);
}

void ResolveActivations(Job& job) {
  const ActivationPolicy policy = ResolvePlacement(job.config);
  if (job.forward_only) return;
  for (const auto& [id, field] : kPlacementKeys) {
    if (!IsRead(job.model, id)) continue;
    job.activations.Set(id, policy.Of(id));
  }
}

// What is said to be offloaded and never is, as a sentence; empty: none.
std::string OffloadedInVain(const Job& job) {
  std::string names;
  for (const auto& [id, field] : kPlacementKeys)
    if (job.config.*field == "offload" && !IsRead(job.model, id))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", RowOf(id).name);
  return names.empty() ? "" : fmt::format("; no layer of this model keeps {}", names);
}

void ResolveOffload(const Job& job) {
  const std::string& directory = job.config.offload_directory;
  if (job.forward_only) return;
  Require(
      ExitCode::kUsage, !job.config.optimizer_memory_host_offload || job.config.opt_type != "sgd",
      "optimizer_memory_host_offload is true, but opt_type sgd has no state to offload; leave one of them "
      "out");
  if (directory.empty()) return;
  Require(
      ExitCode::kUsage, job.offloads(),
      "offload_directory is {}, but nothing is offloaded by remat_policy {}{}; leave it out, take a policy "
      "that offloads (minimal_offloaded, or custom with a key like context=offload), or set "
      "optimizer_memory_host_offload=true or parameter_memory_host_offload=true",
      directory, job.config.remat_policy, OffloadedInVain(job));
  // Without text it is planned, for a machine that may be another.
  Require(ExitCode::kUsage, job.sources.empty() || IsDirectory(directory),
          "offload_directory {} is not a folder; make it or give another", directory);
}

void ResolveRun(TrainConfig& c) {
  if (c.learning_rate_schedule_steps < 0) c.learning_rate_schedule_steps = c.steps;
  Require(ExitCode::kUsage, !c.run_name.empty() || c.resume != "auto",
          "resume=auto needs run_name, the run to go on with; without it each start is a new run");
  if (c.run_name.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
    const fs::path model =
        (fs::path(c.model_path) / "").lexically_normal().parent_path();  // no slash at its end
    const std::string name = fmt::format("{}-{}", model.filename().string(), text.data());
    c.run_name = name;  // runs begun within a second are numbered
    for (int n = 2; Exists(c.base_output_directory + "/" + c.run_name); ++n)
      c.run_name = fmt::format("{}-{}", name, n);
  }
  Require(ExitCode::kUsage, !c.base_output_directory.empty(),
          "base_output_directory is empty; give a folder, . for this one");
  const bool is_plain = std::none_of(c.run_name.begin(), c.run_name.end(),
                                     [](unsigned char x) { return x == '/' || x < ' ' || x == 0x7f; });
  Require(ExitCode::kUsage, is_plain && c.run_name != "." && c.run_name != "..",
          "run_name '{}' cannot be the name of a folder in base_output_directory: it may be neither . nor "
          ".., and "
          "hold no slash or control character",
          c.run_name);
}

// What model and text leave open.
void Resolve(Job& job) {
  ParsePacking(job.config.packing);
  job.dtype = job.config.dtype == "float32" ? DType::kFloat32 : DType::kBFloat16;
  job.device_memory_limit();  // throws for what is no number of bytes
  ResolveRanks(job);
  ResolveAttention(job);
  ResolveActivations(job);
  ResolveOffload(job);
  CheckPasses(job);
  ResolveRun(job.config);
}

}  // namespace

bool Job::offloads() const { return AnyOffloaded(activations) || config.offloads_state(); }

ModelOptions Job::model_options() const {
  ModelOptions options;
  options.dtype = dtype;
  options.mask = mask;
  options.max_target_length = pass_length();
  options.mlp_chunk_rows = config.mlp_chunk_length;
  options.loss_chunk_rows = config.loss_chunk_length;
  return options;
}

Layout Job::MakeLayout() const {
  return Layout(ParseLayoutKind(config.context_parallel_layout), pass_length(), mesh.ring, mesh.ulysses,
                config.stripe_length);
}

int Job::head_ranks(size_t kind) const {
  return strategies[kind] == "usp" ? mesh.ulysses : strategies[kind] == "ulysses" ? mesh.context() : 1;
}

int64_t Job::pass_length() const {
  if (config.tokens_per_pass == 0) return config.max_target_length;
  return std::min(config.tokens_per_pass, config.max_target_length);
}

Documents Job::EqualDocuments() const {
  const int64_t length = config.max_target_length, step = document_length > 0 ? document_length : length;
  Documents documents;
  for (int64_t begin = 0; begin < length; begin += step)
    documents.push_back({begin, std::min(begin + step, length)});
  return documents;
}

int64_t Job::mean_document_length() const {
  if (sources.empty()) return config.max_target_length / std::ssize(EqualDocuments());
  int64_t documents = 0, tokens = 0;
  for (const DataSource& source : sources) {
    documents += source.corpus->num_documents();
    tokens += source.corpus->total_tokens();
  }
  return tokens / documents;
}

int64_t Job::device_memory_limit() const {
  const std::string& text = config.device_memory_limit;
  if (text.empty()) return 0;
  const std::optional<int64_t> bytes = ParseBytes(text);
  Require(ExitCode::kUsage, bytes.value_or(0) > 0,
          "device_memory_limit is '{}'; wanted are bytes, like 24GiB, 80GB or 512MiB (KiB, MiB, GiB and TiB "
          "count by 1024, KB, MB, GB and TB by 1000)",
          text);
  return *bytes;
}

MixtureReader Job::MakeReader() const {
  return MixtureReader(sources, config.max_target_length, static_cast<uint64_t>(config.data_shuffle_seed),
                       config.enable_data_shuffling, ParsePacking(config.packing));
}

SequenceReader Job::MakeEvalReader() const {
  return SequenceReader(*eval_corpus, config.max_target_length, 0, /*shuffle=*/false,
                        ParsePacking(config.packing));
}

Job OpenModelAlone(const TrainConfig& config) {
  Job job;
  job.config = config;
  LoadModel(job);
  return job;
}

Job OpenModel(const TrainConfig& config) {
  Job job = OpenModelAlone(config);
  LoadTokenizer(job);
  return job;
}

Job OpenTrainedModel(const TrainConfig& config) {
  Job job = OpenModel(config);
  Require(ExitCode::kUsage, !job.model_directory.empty(),
          "model_path {} is a built-in model, which has no weights; give a Hugging Face directory or a "
          "checkpoint",
          config.model_path);
  job.forward_only = true;
  return job;
}

Job OpenText(Job opened) {
  LoadText(opened);
  return opened;
}

Job OfSameModel(const Job& other, const TrainConfig& config) {
  Job job;
  job.config = config;
  job.model = other.model;
  job.model_json = other.model_json;
  job.config_changes = other.config_changes;
  job.model_directory = other.model_directory;
  job.document_length = other.sources.empty() ? other.document_length
                                              : std::min(other.mean_document_length(), job.pass_length());
  return job;
}

Job PrepareJob(Job opened) {
  if (opened.sources.empty()) LoadText(opened);
  Resolve(opened);
  return opened;
}

Job PrepareJobWithoutText(Job opened) {
  Resolve(opened);
  return opened;
}

Job PrepareJob(const TrainConfig& config) { return PrepareJob(OpenModel(config)); }

Job PrepareJob(const TrainConfig& config, const ModelConfig& model, std::unique_ptr<Corpus> corpus) {
  Job job;
  job.config = config;
  job.model = model;
  job.sources.push_back({"memory", 1, std::move(corpus)});
  Resolve(job);
  return job;
}

}  // namespace longspan
