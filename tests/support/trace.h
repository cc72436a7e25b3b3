// What a trace (profile/trace.json, plan --trace) shows.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/file.h"

namespace longspan::testing {

// "thread: name" of a rank's spans but for waits.
inline std::set<std::string> NamesInTrace(const std::string& path, int rank) {
  const nlohmann::json trace = nlohmann::json::parse(ReadTextFile(path));
  std::map<int, std::string> lanes;  // the names of its threads
  std::set<std::string> names;
  for (const auto& event : trace["traceEvents"]) {
    if (event["pid"] != rank || event["name"] == "process_name") continue;
    const int tid = event["tid"];
    const std::string name = event["name"];
    if (name == "thread_name") lanes[tid] = event["args"]["name"].get<std::string>();
    if (event["ph"] == "X" && !name.starts_with("wait")) names.insert(lanes.at(tid) + ": " + name);
  }
  return names;
}

}  // namespace longspan::testing
