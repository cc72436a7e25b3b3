// What ranks may be at when one of them fails.
#pragma once

#include <chrono>
#include <functional>
#include <ostream>
#include <thread>
#include <vector>

#include "comm/comm.h"

namespace longspan::testing {

inline Tensor Int(int32_t& value) { return Tensor(&value, DType::kInt32, {1}); }

inline void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

// How the ranks that live are occupied when rank `failing` fails. Each must end in PeerFailed.
struct Occupation {
  const char* name;
  std::function<void(Comm&, int failing)> act;
};

inline void PrintTo(const Occupation& occupation, std::ostream* out) { *out << occupation.name; }

inline std::vector<Occupation> Occupations() {
  const auto gather = [](Comm& comm) {
    std::vector<int32_t> mine(1000, comm.rank()), all(1000 * static_cast<size_t>(comm.size()));
    comm.AllGather(Tensor(mine.data(), DType::kInt32, {1000}),
                   Tensor(all.data(), DType::kInt32, {std::ssize(all)}))
        .Wait();
  };
  return {
      {"AllGather", [=](Comm& comm, int) { gather(comm); }},
      {"ReduceScatter",
       [](Comm& comm, int) {
         std::vector<float> send(100 * static_cast<size_t>(comm.size())), recv(100);
         comm.ReduceScatter(Tensor(send.data(), DType::kFloat32, {std::ssize(send)}),
                            Tensor(recv.data(), DType::kFloat32, {100}))
             .Wait();
       }},
      {"AllReduceSum",
       [](Comm& comm, int) {
         std::vector<float> values(101);
         comm.AllReduceSum(Tensor(values.data(), DType::kFloat32, {101}));
       }},
      {"SumOverRanks", [](Comm& comm, int) { comm.SumOverRanks(1); }},
      {"Barrier", [](Comm& comm, int) { comm.Barrier(); }},
      {"Recv",
       [](Comm& comm, int failing) {
         int32_t value = 0;
         comm.Recv(Int(value), failing).Wait();
       }},
      {"Send",
       [](Comm& comm, int failing) {
         int32_t value = 0;
         comm.Send(Int(value), failing).Wait();
       }},
      {"RecvFromAnotherThatLives",
       [](Comm& comm, int failing) {
         int32_t value = 0;
         comm.Recv(Int(value), failing == 0 ? comm.size() - 1 : 0).Wait();
       }},
      {"BarrierOfASubgroupWithTheFailing",
       [](Comm& comm, int failing) {
         const std::vector<int> pair = {failing, comm.rank()};
         comm.Subgroup(pair)->Barrier();
       }},
      {"SubgroupsWithoutTheFailing",
       [](Comm& comm, int failing) {
         std::vector<int> others;
         for (int r = 0; r < comm.size(); ++r)
           if (r != failing) others.push_back(r);
         for (;;) comm.Subgroup(others)->Barrier();
       }},
      {"MakingSubgroups",
       [](Comm& comm, int) {
         const std::vector<int> alone = {comm.rank()};
         for (;;) comm.Subgroup(alone);
       }},
      {"AnOperationThatNeverBegins",
       [](Comm& comm, int) {
         const EventSource never;
         int32_t sent = 1, received = 2;
         const Event send = comm.Send(Int(sent), comm.rank());
         comm.Recv(Int(received), comm.rank(), never.event()).Wait();
       }},
      {"AnEventThatFailsWhileTheRankComputes",
       [](Comm& comm, int failing) {
         int32_t value = 0;
         const Event event = comm.Recv(Int(value), failing);
         while (!event.Done()) std::this_thread::yield();
         event.Wait();
       }},
      {"ComputingAndThenABarrier",
       [](Comm& comm, int) {
         for (int i = 0; i < 5; ++i) Pause();
         comm.Barrier();
       }},
      {"ManyOperationsInFlight",
       [=](Comm& comm, int) {
         std::vector<int32_t> values(64, 7);
         std::vector<Event> events;
         for (size_t i = 0; i < 32; ++i) {
           events.push_back(comm.Send(Int(values[i]), (comm.rank() + 1) % comm.size()));
           events.push_back(comm.Recv(Int(values[32 + i]), (comm.rank() + comm.size() - 1) % comm.size()));
         }
         gather(comm);
       }},
  };
}

}  // namespace longspan::testing
