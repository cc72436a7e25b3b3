// A plan as a table for people and as JSON (docs/reference/plan.md).
#pragma once

#include <string>
#include <vector>

#include "plan/auto.h"
#include "plan/plan.h"

namespace longspan {

// With what was chosen for it, if anything was.
std::string PlanTable(const Job& job, const Hardware& hardware, const Plan& plan, const AutoChoice& choice);
std::string PlanJson(const Job& job, const Hardware& hardware, const Plan& plan, const AutoChoice& choice);
std::string PlanPage(const Job& job, const Hardware& hardware, const Plan& plan, const AutoChoice& choice);

// "1.23 s", "45.6 ms", "2 h 03 min".
std::string FormatSeconds(double seconds);
// "512", "64K", "1M", "1.5M": 1024-based.
std::string FormatLength(int64_t tokens);
// Columns as wide as what they hold, right-justified but for the last.
std::string TextTable(const std::vector<std::string>& header,
                      const std::vector<std::vector<std::string>>& rows);

}  // namespace longspan
