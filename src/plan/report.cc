#include "plan/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/format.h"
#include "core/page.h"

namespace longspan {
namespace {

using Json = nlohmann::ordered_json;

double Seconds(const Timeline& timeline, Lane lane) { return timeline.waited[static_cast<size_t>(lane)]; }

std::string StrategiesOf(const Job& job) {
  return fmt::format("{}", fmt::join(std::set(job.strategies.begin(), job.strategies.end()), " and "));
}

std::string Line(std::string_view title, const std::string& value) {
  return fmt::format("{:<9} {}\n", title, value);
}

std::string MemoryLines(const std::map<std::string, int64_t>& memory) {
  size_t width = 0;
  for (const auto& [name, bytes] : memory) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, bytes] : LargestFirst(memory))
    text += Line("", fmt::format("{:<{}}  {:>9}", name, width, FormatBytes(bytes)));
  return text;
}

// What a step consists of, the greatest part first.
std::vector<std::pair<double, std::string>> PartsOf(const Plan& plan) {
  const Timeline& t = plan.timeline;
  std::vector<std::pair<double, std::string>> parts = {{t.attention, "attention"},
                                                       {t.matmul, "matrix products"},
                                                       {t.pointwise, "memory-bound operations"},
                                                       {Seconds(t, Lane::kLink), "waiting for links"},
                                                       {Seconds(t, Lane::kHost), "waiting for the host"},
                                                       {Seconds(t, Lane::kDisk), "waiting for the disk"}};
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::erase_if(parts, [](const auto& part) { return part.first == 0; });
  return parts;
}

std::string PartsText(const Plan& plan) {
  std::vector<std::string> texts;
  for (const auto& [seconds, name] : PartsOf(plan))
    texts.push_back(fmt::format("{} {}", name, Percent(seconds / plan.step_seconds)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

Json MemoryJson(const std::map<std::string, int64_t>& memory) {
  Json json = Json::object();
  for (const auto& [name, bytes] : memory) json[name] = bytes;
  return json;
}

// What is planned, on what.
std::string Subject(const Job& job, const Hardware& hardware, const Plan& plan) {
  const TrainConfig& c = job.config;
  std::string text =
      Line("machine", fmt::format("{}: {} of {}, {:g} TFLOP/s each in {}", hardware.hardware_name,
                                  Plural(job.mesh.ranks(), "device"), FormatBytes(plan.device_memory_limit),
                                  RankHardware(job, hardware).peak_flops(job.dtype) / 1e12, c.dtype));
  text += Line("model", fmt::format("{}: {} parameters", c.model_path, Grouped(job.model.num_parameters())));
  text += Line("mesh", fmt::format("data {} × fsdp {} × ring {} × ulysses {}; strategy {}, layout {}",
                                   job.mesh.data, job.mesh.fsdp, job.mesh.ring, job.mesh.ulysses,
                                   StrategiesOf(job), c.context_parallel_layout));
  text += Line("step",
               fmt::format("{} of {} tokens ({}), {} of each, in {}", Plural(c.global_batch_size, "sequence"),
                           Grouped(c.max_target_length), FormatLength(c.max_target_length),
                           Plural(std::ssize(job.EqualDocuments()), "document"),
                           Plural(job.micro_steps(), "micro-step")));
  return text;
}

}  // namespace

std::string FormatSeconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  if (seconds < 1000) return fmt::format("{:.4g} s", seconds);
  return fmt::format("{:.0f} s", seconds);
}

std::string FormatLength(int64_t tokens) {
  const auto in = [&](int64_t unit, const char* name) {
    return fmt::format("{:.4g}{}", static_cast<double>(tokens) / static_cast<double>(unit), name);
  };
  if (tokens >= 1 << 20) return in(1 << 20, "M");
  return tokens >= 1 << 10 ? in(1 << 10, "K") : std::to_string(tokens);
}

std::string TextTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::string& cell : header) widths.push_back(cell.size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < row.size(); ++i)
      text +=
          i + 1 == row.size() ? "  " + row[i] : fmt::format("{:>{}}", row[i], widths[i] + (i > 0 ? 2 : 0));
    text += "\n";
  };
  add(header);
  for (const auto& row : rows) add(row);
  return text;
}

std::string PlanTable(const Job& job, const Hardware& hardware, const Plan& plan, const AutoChoice& choice) {
  std::string text = AutoText(choice) + Subject(job, hardware, plan);
  text += Line("memory",
               fmt::format("{} a device of {}: {}", FormatBytes(plan.device_memory_bytes),
                           FormatBytes(plan.device_memory_limit),
                           plan.device_memory_bytes <= plan.device_memory_limit ? "fits" : "does not fit"));
  text += MemoryLines(plan.memory);
  text +=
      Line("host", fmt::format("{} a device of {}: {}", FormatBytes(plan.host_memory_bytes),
                               FormatBytes(plan.host_memory_limit),
                               plan.host_memory_bytes <= plan.host_memory_limit ? "fits" : "does not fit"));
  text += MemoryLines(plan.host_memory);
  if (!plan.disk.empty()) text += Line("disk", "a device") + MemoryLines(plan.disk);
  for (const std::string& keys : plan.would_fit) text += Line("would fit", keys);
  text += Line("time", fmt::format("{} a step, bound by {}: {}", FormatSeconds(plan.step_seconds),
                                   plan.bound_by, PartsText(plan)));
  text += Line("speed", fmt::format("{:.1f} tokens/s a device; MFU {} ({} as MaxText counts), HFU {}",
                                    plan.tokens_per_second_per_device, Percent(plan.mfu),
                                    Percent(plan.mfu_maxtext), Percent(plan.hfu)));
  text += Line("messages", fmt::format("{} a device, {} in all", Plural(plan.messages_sent, "message"),
                                       FormatBytes(plan.bytes_sent)));
  if (plan.host_bytes > 0 || plan.disk_bytes > 0)
    text += Line("copies", fmt::format("{} to and from the host, {} to and from the disk",
                                       FormatBytes(plan.host_bytes), FormatBytes(plan.disk_bytes)));
  text +=
      Line("balance", fmt::format("the busiest of {} has {:.3f} × the mean of allowed pairs",
                                  Plural(std::ssize(plan.pairs_by_rank), "context rank"), plan.balance()));
  return text;
}

std::string PlanPage(const Job& job, const Hardware& hardware, const Plan& plan, const AutoChoice& choice) {
  const Timeline& t = plan.timeline;
  std::vector<std::vector<std::string>> time;
  for (const auto& [seconds, name] : PartsOf(plan))
    time.push_back({name, FormatSeconds(seconds), Percent(seconds / plan.step_seconds)});
  std::vector<std::vector<std::string>> lanes;
  for (int lane = 0; lane < kNumLanes; ++lane) {
    const double busy = t.busy[static_cast<size_t>(lane)];
    lanes.push_back(
        {std::string(Name(static_cast<Lane>(lane))), FormatSeconds(busy), Percent(busy / plan.step_seconds)});
  }
  std::string body = fmt::format("<pre>{}</pre>\n", EscapeHtml(Subject(job, hardware, plan)));
  if (!choice.empty()) body += fmt::format("<h2>Chosen</h2>\n<pre>{}</pre>\n", EscapeHtml(AutoText(choice)));
  if (!plan.would_fit.empty())
    body += fmt::format("<h2>Would fit</h2>\n<pre>{}</pre>\n",
                        EscapeHtml(fmt::format("{}", fmt::join(plan.would_fit, "\n"))));
  body += "<h2>A step</h2>\n" + HtmlTable({"part", "time", "of the step"}, time);
  body += "<h2>Lanes</h2>\n" + HtmlTable({"lane", "busy", "of the step"}, lanes);
  body +=
      HtmlTable({"what a device moves", "bytes"},
                {{fmt::format("in {}", Plural(plan.messages_sent, "message")), FormatBytes(plan.bytes_sent)},
                 {"to and from the host", FormatBytes(plan.host_bytes)},
                 {"to and from the disk", FormatBytes(plan.disk_bytes)}});
  body += fmt::format("<p>The busiest of {} has {:.3f} × the mean of allowed pairs.</p>\n",
                      Plural(std::ssize(plan.pairs_by_rank), "context rank"), plan.balance());
  const auto add_memory = [&](const std::string& title, const std::map<std::string, int64_t>& memory) {
    if (memory.empty()) return;
    std::vector<std::vector<std::string>> rows;
    for (const auto& [name, bytes] : LargestFirst(memory)) rows.push_back({name, FormatBytes(bytes)});
    body += fmt::format("<h2>{}</h2>\n", title) + HtmlTable({"what", "bytes"}, rows);
  };
  const auto of = [](int64_t bytes, int64_t limit) {
    return fmt::format("{} of {}", FormatBytes(bytes), FormatBytes(limit));
  };
  add_memory("Memory of a device: " + of(plan.device_memory_bytes, plan.device_memory_limit), plan.memory);
  add_memory("Memory of the host, a device: " + of(plan.host_memory_bytes, plan.host_memory_limit),
             plan.host_memory);
  add_memory("Disk, a device", plan.disk);
  const std::string verdict = plan.fits ? "fits" : "does not fit: " + plan.misfit;
  return HtmlPage(
      fmt::format("{} with sequences of {} on {} × {}", job.config.model_path,
                  FormatLength(job.config.max_target_length), job.mesh.ranks(), hardware.hardware_name),
      fmt::format("{}; {} a step, MFU {}, {:.1f} tokens/s a device; planned, not measured", verdict,
                  FormatSeconds(plan.step_seconds), Percent(plan.mfu), plan.tokens_per_second_per_device),
      body);
}

std::string PlanJson(const Job& job, const Hardware& hardware, const Plan& plan, const AutoChoice& choice) {
  const TrainConfig& c = job.config;
  const Timeline& t = plan.timeline;
  Json json = {{"hardware", hardware.hardware_name},
               {"model_path", c.model_path},
               {"max_target_length", c.max_target_length},
               {"global_batch_size", c.global_batch_size},
               {"ranks", job.mesh.ranks()},
               {"data_parallelism", job.mesh.data},
               {"fsdp_parallelism", job.mesh.fsdp},
               {"context_parallelism", job.mesh.ring},
               {"ulysses_parallelism", job.mesh.ulysses},
               {"context_parallel_strategy", StrategiesOf(job)},
               {"context_parallel_layout", c.context_parallel_layout},
               {"remat_policy", c.remat_policy},
               {"chosen", choice.empty() ? Json() : AutoJson(choice)},
               {"fits", plan.fits},
               {"misfit", plan.misfit},
               {"would_fit", plan.would_fit},
               {"device_memory_bytes", plan.device_memory_bytes},
               {"device_memory_limit", plan.device_memory_limit},
               {"host_memory_bytes", plan.host_memory_bytes},
               {"host_memory_limit", plan.host_memory_limit},
               {"memory", MemoryJson(plan.memory)},
               {"host_memory", MemoryJson(plan.host_memory)},
               {"disk", MemoryJson(plan.disk)},
               {"step_seconds", plan.step_seconds},
               {"mfu", plan.mfu},
               {"mfu_maxtext", plan.mfu_maxtext},
               {"hfu", plan.hfu},
               {"tokens_per_second_per_device", plan.tokens_per_second_per_device},
               {"bound_by", plan.bound_by}};
  json["seconds"] = {{"attention", t.attention},
                     {"matmul", t.matmul},
                     {"memory", t.pointwise},
                     {"waiting_for_link", Seconds(t, Lane::kLink)},
                     {"waiting_for_host", Seconds(t, Lane::kHost)},
                     {"waiting_for_disk", Seconds(t, Lane::kDisk)}};
  Json busy = Json::object();
  for (int lane = 0; lane < kNumLanes; ++lane)
    busy[std::string(Name(static_cast<Lane>(lane)))] = t.busy[static_cast<size_t>(lane)];
  json["busy_seconds"] = busy;
  json["useful_flops"] = plan.useful_flops;
  json["hardware_flops_per_device"] = plan.hardware_flops;
  json["bytes_sent"] = plan.bytes_sent;
  json["messages_sent"] = plan.messages_sent;
  json["host_bytes"] = plan.host_bytes;
  json["disk_bytes"] = plan.disk_bytes;
  json["allowed_pairs_by_rank"] = plan.pairs_by_rank;
  json["balance"] = plan.balance();
  return json.dump(2) + "\n";
}

}  // namespace longspan
