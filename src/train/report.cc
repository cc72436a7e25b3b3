#include "train/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/format.h"
#include "core/machine.h"
#include "data/data_report.h"
#include "train/memory_budget.h"

namespace longspan {
namespace {

// "; 2 binary files skipped, …"; nothing if all files were read as they are.
std::string LeftOut(const FileCounts& counts) {
  std::string text;
  const auto add = [&](int64_t n, const char* what, const char* done) {
    if (n > 0) text += fmt::format("{} {} {}", text.empty() ? ";" : ",", Plural(n, what), done);
  };
  add(counts.binary, "binary file", "skipped");
  add(counts.left_out, "file", "left out by data_path_filter");
  add(counts.not_utf8, "file", "skipped that are not UTF-8");
  add(counts.mended, "file", "with bytes that are not UTF-8, replaced");
  return text;
}

// "decoder_layer_input, query_proj, …; by remat_policy save_qkv_proj_with_context".
std::string KeptActivations(const Job& job) {
  std::vector<std::string_view> names;
  for (const ActivationRow& row : ActivationTable())
    if (row.id != Activation::kContextLse && job.activations.Keeps(row.id)) names.push_back(row.name);
  return fmt::format("{}; by remat_policy {}", fmt::join(names, ", "), job.config.remat_policy);
}

// "5 of sliding_attention, window 512, by ulysses; 1 of full_attention, by ring".
std::string LayerKinds(const Job& job) {
  const ModelConfig& m = job.model;
  std::string text;
  for (size_t kind = 0; kind < m.layer_kinds.size(); ++kind) {
    const LayerKind& k = m.layer_kinds[kind];
    const auto layers = std::ranges::count(m.layer_kind_of, static_cast<int>(kind));
    text += fmt::format("{}{} of {}", text.empty() ? "" : "; ", Grouped(layers), k.name);
    if (k.sliding_window > 0) text += fmt::format(", window {}", Grouped(k.sliding_window));
    text += fmt::format(", by {}", job.strategies[kind]);
  }
  return text;
}

int NumThreads(const Job& job) {
  const int64_t wanted = job.config.ranks * job.config.threads_per_rank;
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, NumCores()));
}

std::string Line(std::string_view title, const std::string& value) {
  return fmt::format("{:<9} {}\n", title, value);
}

// A row for each name, the largest first.
std::string MemoryTable(const std::map<std::string, int64_t>& memory) {
  const auto rows = LargestFirst(memory);
  size_t width = 0;
  for (const auto& [name, bytes] : rows) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, bytes] : rows)
    text += fmt::format("{:<9} {:<{}}  {:>9}\n", "", name, width, FormatBytes(bytes));
  return text;
}

// Where what is offloaded goes, how much of it there is, and what a step writes there.
std::string OffloadLines(const Job& job, const DryRun& dry) {
  const std::string& directory = job.config.offload_directory;
  const std::string where =
      directory.empty() ? "host memory"
      : WritesDirectly(directory)
          ? fmt::format("{}, past the page cache", directory)
          : fmt::format("{}, through the page cache (its file system refuses direct I/O)", directory);
  std::map<std::string, int64_t> offloaded = directory.empty() ? dry.host_memory : dry.disk;
  offloaded.erase(std::string(Snapshot::kMemoryName));
  const int64_t of_pass = dry.offload_bytes_written - dry.update_bytes_written;
  std::vector<std::string> written;
  const auto add = [&](int64_t bytes_of_rank, const char* when) {
    if (bytes_of_rank > 0)
      written.push_back(fmt::format("{} written {}", FormatBytes(bytes_of_rank * job.mesh.ranks()), when));
  };
  if (job.pass_length() < job.config.max_target_length) {  // the documents decide how many passes there are
    add(of_pass, "a pass");
    add(dry.update_bytes_written, "an update");
  } else {
    add(of_pass * job.micro_steps() + dry.update_bytes_written, "a step");
  }
  return Line("offload", fmt::format("{} a rank in {}; {}", FormatBytes(TotalBytes(offloaded)), where,
                                     fmt::join(written, ", "))) +
         MemoryTable(offloaded);
}

// A source's documents, their lengths, and what the run makes of them.
std::string DataLines(const Job& job, const DataSource& source) {
  const TrainConfig& c = job.config;
  double weights = 0;
  for (const DataSource& s : job.sources) weights += s.weight;
  const double share = source.weight / weights;
  const CorpusLengths lengths = MeasureLengths(*source.corpus);
  std::string data =
      fmt::format("{}{}: {}, {}", job.sources.size() > 1 ? Percent(share) + " from " : "", source.path,
                  Plural(lengths.num_documents, "document"), Plural(lengths.num_tokens, "token"));
  if (lengths.num_documents > 1)
    data += fmt::format("; mean {}, median {}, longest {}", Grouped(std::llround(lengths.mean)),
                        Grouped(lengths.median), Grouped(lengths.longest));
  data += LeftOut(source.corpus->file_counts());
  std::string text = Line("data", data);
  if (lengths.num_documents > 1)
    for (const std::string& row : LengthTable(lengths)) text += Line("", row);

  const EpochReport epoch =
      MeasureEpoch(*source.corpus, c.max_target_length, static_cast<uint64_t>(c.data_shuffle_seed),
                   c.enable_data_shuffling, ParsePacking(c.packing));
  const double epochs = share * static_cast<double>(c.steps) * static_cast<double>(c.global_batch_size) /
                        static_cast<double>(epoch.num_sequences);
  text +=
      Line("packing", fmt::format("{}: {} an epoch, {} padding, {} cut, {} dropped; {} read {:.3g} epochs",
                                  c.packing, Plural(epoch.num_sequences, "sequence"),
                                  Percent(epoch.padding(), 2), Plural(epoch.num_cut, "document"),
                                  Plural(lengths.num_tokens - epoch.num_tokens, "token"),
                                  Plural(c.steps, "step"), epochs));
  return text;
}

}  // namespace

MachinePeak FindPeak(const Job& job) {
  const int num_threads = NumThreads(job);
  if (job.config.peak_tflops > 0) return {job.config.peak_tflops * 1e12, num_threads, "given"};
  const CpuPeak peak = MeasureCpuPeak(job.dtype, num_threads);
  return {peak.flops_per_second, num_threads, peak.unit + ", measured"};
}

MachinePeak FindPeak(const Job& job, Comm& world, std::span<const Host> hosts) {
  // Each rank's threads, or where they are more than a host's cores, these by its first rank.
  const Host& host = HostOf(hosts, world.rank());
  const int64_t wanted = job.config.threads_per_rank;
  const bool is_crowded = wanted * host.num_ranks() > host.num_cores,
             is_first = host.ranks[0] == world.rank();
  const int mine = is_crowded ? (is_first ? host.num_cores : 0) : static_cast<int>(wanted);
  const bool is_given = job.config.peak_tflops > 0;
  CpuPeak peak;
  world.Barrier();
  if (mine > 0 && !is_given) peak = MeasureCpuPeak(job.dtype, mine);
  double sums[2] = {peak.flops_per_second, static_cast<double>(mine)};
  world.SumOverRanks(sums);
  const int num_threads = static_cast<int>(sums[1]);
  if (is_given) return {job.config.peak_tflops * 1e12, num_threads, "given"};
  return {sums[0], num_threads, peak.unit + ", measured"};
}

std::string StartReport(const Job& job, const MachinePeak& peak, const DryRun& dry,
                        std::span<const Host> hosts) {
  const TrainConfig& c = job.config;
  const ModelConfig& m = job.model;
  std::string text;
  const auto line = [&](const char* title, const std::string& value) { text += Line(title, value); };

  line("machine", fmt::format("{}, {}, {}; {} peak {:.0f} GFLOP/s on {} ({})", CpuModel(),
                              Plural(NumCores(), "core"), FormatBytes(PhysicalMemory()), c.dtype,
                              peak.flops_per_second / 1e9, Plural(peak.num_threads, "thread"), peak.source));
  if (!hosts.empty())
    for (const std::string& text_of_host : DescribeHosts(hosts)) line("hosts", text_of_host);
  line("target", fmt::format("{}, {} × {}", CpuTargetName(), Plural(c.ranks, "rank"),
                             Plural(c.threads_per_rank, "thread")));
  const std::string fsdp =
      c.shard_parameters ? fmt::format(" × fsdp {}", job.mesh.fsdp) : "";  // nothing is sharded without
  line("mesh", fmt::format("data {}{} × ring {} × ulysses {}; strategy {}, layout {}, mask {}", job.mesh.data,
                           fsdp, job.mesh.ring, job.mesh.ulysses,
                           fmt::join(std::set(job.strategies.begin(), job.strategies.end()), " and "),
                           c.context_parallel_layout, c.attention_mask));
  line("model", fmt::format("{}: {} parameters; {} of width {}, {} query / {} KV heads of {}, vocabulary {}",
                            c.model_path, Grouped(m.num_parameters()), Plural(m.num_hidden_layers, "layer"),
                            m.hidden_size, m.num_attention_heads, m.num_key_value_heads, m.head_dim,
                            Grouped(m.vocab_size)));
  if (m.layer_kinds.size() > 1 || m.layer_kinds[0].sliding_window > 0) line("layers", LayerKinds(job));
  if (!job.config_changes.empty()) line("config", job.config_changes);
  for (const DataSource& source : job.sources) text += DataLines(job, source);
  line("tokenizer", !c.tokenizer_path.empty()                              ? c.tokenizer_path
                    : job.tokenizer == nullptr || job.tokenizer->IsBytes() ? "bytes"
                                                                           : job.tokenizer_directory);
  line("step",
       fmt::format("{} of {} = {} in {}", Plural(c.global_batch_size, "sequence"),
                   Grouped(c.max_target_length), Plural(c.global_batch_size * c.max_target_length, "token"),
                   Plural(job.micro_steps(), "micro-step")) +
           (job.pass_length() < c.max_target_length
                ? fmt::format(", in passes of at most {}", Plural(job.pass_length(), "token"))
                : ""));
  line("keeps", KeptActivations(job));

  line("memory", fmt::format("{} a rank{}", FormatBytes(TotalBytes(dry.memory)),
                             c.device_memory_limit.empty()
                                 ? ""
                                 : fmt::format(" of {} (device_memory_limit)", c.device_memory_limit)));
  text += MemoryTable(dry.memory);
  if (job.offloads()) text += OffloadLines(job, dry);
  if (job.saves()) {
    const std::string name(Snapshot::kMemoryName);
    const int64_t bytes = dry.host_memory.at(name);
    line("saves", fmt::format("every {}, from {} a rank in host memory", Plural(c.checkpoint_period, "step"),
                              FormatBytes(bytes)));
    text += MemoryTable({{name, bytes}});
  }
  line("run", job.run_directory());
  return text;
}

}  // namespace longspan
