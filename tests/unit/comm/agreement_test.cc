#include "comm/agreement.h"

#include <gtest/gtest.h>

#include <string>

#include "comm/thread_comm.h"
#include "support/expect_error.h"

namespace longspan {
namespace {

TEST(Agreement, AllGetTheTextOfTheFirst) {
  for (const std::string text : {"", "one line", "two\nlines\n"})
    RunThreadRanks(
        3, [&](Comm& comm) { EXPECT_EQ(ShareText(comm, comm.rank() == 0 ? text : "another"), text); });
}

TEST(Agreement, EqualTextsAgree) {
  RunThreadRanks(4, [](Comm& comm) {
    RequireAgreement(comm, "nothing", "");
    RequireAgreement(comm, "the recipe", "a: 1\nb: 2\n");
  });
}

TEST(Agreement, TheFirstLineThatDiffersIsNamed) {
  struct Case {
    std::string first, other, there, here;
  };
  for (const Case& c : {Case{"a: 1\nb: 2\nc: 3", "a: 1\nb: 4\nc: 5", "'b: 2'", "'b: 4'"},
                        Case{"a: 1", "a: 1\nb: 2", "''", "'b: 2'"},
                        Case{"a: 1\nb: 2", "a: 1", "'b: 2'", "''"}, Case{"a: 1", "", "'a: 1'", "''"}}) {
    testing::ExpectError(
        {"ranks disagree on the recipe: rank 2 has " + c.here + " and rank 0 " + c.there},
        [&] {
          RunThreadRanks(3, [&](Comm& comm) {
            RequireAgreement(comm, "the recipe", comm.rank() == 2 ? c.other : c.first);
            comm.Barrier();
          });
        },
        ExitCode::kUsage);
  }
}

}  // namespace
}  // namespace longspan
