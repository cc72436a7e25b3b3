#include "core/launched.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace longspan {

std::optional<int> LaunchedRank() {
  // Open MPI's; that of MPICH's launcher and of Slurm's with pmi2; that of Slurm's with pmix.
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text(value);
    int rank = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error == std::errc() && end == text.data() + text.size() && rank >= 0) return rank;
  }
  return std::nullopt;
}

}  // namespace longspan
