// A program whose ranks fail, for failure_test.cc, which starts it and reads what it says:
//   mpi_failing NAME FAILING at_once|later   the rank FAILING fails while the others do what NAME says
//   mpi_failing alike                        all fail alike
//   mpi_failing busy                         rank 1 fails while rank 0 computes on and on
//   mpi_failing killed                       rank 1 is killed
//   mpi_failing stopped                      rank 1 is stopped for ever while the others wait for it
//   mpi_failing idle                         rank 1 sleeps while the others wait for it, or for those
//   mpi_failing slow                         rank 1 computes for three times the timeout
//   mpi_failing circle                       three ranks wait for each other
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "comm/mpi_comm.h"
#include "core/check.h"
#include "core/clock.h"
#include "unit/comm/occupations.h"

namespace longspan {
namespace {

using testing::Int;
using testing::Pause;

void Say(Comm& comm, const std::string& what) {
  std::fputs(fmt::format("rank {} {}\n", comm.rank(), what).c_str(), stderr);
}

void Fail() { throw Error("out of luck", ExitCode::kResource); }

// Whether `act` throws the PeerFailed that it should.
template <class Act>
bool Stops(int failing, Act act) {
  try {
    act();
  } catch (const PeerFailed& error) {
    return error.what() == fmt::format("rank {} failed: out of luck", failing);
  }
  return false;
}

void OneFails(Comm& comm, const std::string& name, int failing, bool at_once) {
  if (comm.rank() == failing) {
    if (!at_once) Pause();
    Fail();
  }
  const std::vector<testing::Occupation> all = testing::Occupations();
  const auto occupation = std::ranges::find(all, name, [](const auto& row) { return std::string(row.name); });
  CHECK(occupation != all.end());
  int32_t value = 0;
  const std::vector<int> alone = {comm.rank()};
  if (Stops(failing, [&] { occupation->act(comm, failing); }) && Stops(failing, [&] { comm.Barrier(); }) &&
      Stops(failing, [&] { comm.Send(Int(value), comm.rank()).Wait(); }) &&
      Stops(failing, [&] { comm.Subgroup(alone); }))
    Say(comm, "was told");
  comm.Barrier();
}

void Body(Comm& comm, const std::vector<std::string>& arguments) {
  const std::string& name = arguments[0];
  if (name == "alike") return Fail();
  if (name == "busy") {
    if (comm.rank() == 1) Fail();
    if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::minutes(2));
    return comm.Barrier();
  }
  if (name == "killed") {
    if (comm.rank() == 1) std::raise(SIGKILL);
    return comm.Barrier();
  }
  comm.SetFailureTimeout(0.8);
  comm.set_step(12);
  int32_t value = 0;
  if (name == "stopped") {
    if (comm.rank() == 1) std::raise(SIGSTOP);
    return comm.Barrier();
  }
  if (name == "idle") {
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::minutes(2));
    if (comm.rank() == 0) comm.Send(Int(value), 1).Wait();
    return comm.Barrier();
  }
  if (name == "slow") {
    for (const double end = Now() + 2.4; comm.rank() == 1 && Now() < end;) {
    }
    if (comm.rank() == 2) comm.Recv(Int(value), 1).Wait();
    if (comm.rank() == 1) comm.Send(Int(value), 2).Wait();
    return comm.Barrier();
  }
  if (name == "circle") return comm.Recv(Int(value), (comm.rank() + 1) % comm.size()).Wait();
  OneFails(comm, name, std::atoi(arguments[1].c_str()), arguments[2] == "at_once");
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  int code = 0;
  try {
    longspan::RunMpiRank(
        [&](longspan::Comm& comm) { longspan::Body(comm, std::vector<std::string>(argv + 1, argv + argc)); });
  } catch (const longspan::Error& error) {
    code = static_cast<int>(error.code());
    std::fputs(fmt::format("error {}: {}\n", code, error.what()).c_str(), stderr);
  }
  longspan::LeaveMpi(code);
  return code;
}
