#include "core/launched.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace longspan {
namespace {

TEST(Launched, TheRankIsWhatALauncherSays) {
  const char* const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
  for (const char* name : names) unsetenv(name);
  EXPECT_EQ(LaunchedRank(), std::nullopt);
  for (const char* name : names) {
    for (const char* no_rank : {"", "x", "1x", "-1", "99999999999"}) {
      setenv(name, no_rank, 1);
      EXPECT_EQ(LaunchedRank(), std::nullopt) << name << "=" << no_rank;
    }
    setenv(name, "12", 1);
    EXPECT_EQ(LaunchedRank(), 12) << name;
    unsetenv(name);
  }
}

}  // namespace
}  // namespace longspan
