// What `longspan eval` says: a table for a person, JSON for a program (docs/reference/eval.md), a page with a
// picture.
#pragma once

#include <string>

#include "eval/retrieval.h"
#include "eval/text_loss.h"
#include "train/job.h"

namespace longspan {

std::string LossTable(const Job& job, const LossReport& report);
std::string LossJson(const Job& job, const LossReport& report);
std::string LossPage(const Job& job, const LossReport& report);

std::string RetrievalTable(const Job& job, const RetrievalReport& report);
std::string RetrievalJson(const Job& job, const RetrievalReport& report);
std::string RetrievalPage(const Job& job, const RetrievalReport& report);

}  // namespace longspan
