#include "core/stop_signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace longspan {
namespace {

void (*HandlerOf(int signal))(int) {
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

TEST(StopSignals, TheFirstOfAKindIsNoted) {
  for (const int signal : {SIGTERM, SIGINT}) {
    StopSignals signals;
    EXPECT_FALSE(signals.caught());
    signals.Catch();
    EXPECT_FALSE(signals.caught());
    std::raise(signal);
    EXPECT_TRUE(signals.caught());
    signals.Catch();
    EXPECT_TRUE(signals.caught());
  }
}

TEST(StopSignals, TheSecondEndsTheProcess) {
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_EXIT(
        {
          StopSignals signals;
          signals.Catch();
          std::raise(SIGTERM);
          std::raise(SIGINT);
          std::raise(signal);
        },
        ::testing::KilledBySignal(signal), "");
  }
}

TEST(StopSignals, AreAsBeforeInTheEnd) {
  std::signal(SIGINT, SIG_IGN);
  {
    StopSignals signals;
    signals.Catch();
    EXPECT_NE(HandlerOf(SIGTERM), SIG_DFL);
    EXPECT_EQ(HandlerOf(SIGINT), SIG_IGN);
    std::raise(SIGINT);
    EXPECT_FALSE(signals.caught());
  }
  EXPECT_EQ(HandlerOf(SIGTERM), SIG_DFL);
  EXPECT_EQ(HandlerOf(SIGINT), SIG_IGN);
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace
}  // namespace longspan
