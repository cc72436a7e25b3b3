// What libFuzzer calls. FUZZ_TARGET names the target; without it the targets are listed.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "fuzz/targets.h"

namespace {
const longspan::fuzz::Target* target = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("FUZZ_TARGET");
  for (const longspan::fuzz::Target& t : longspan::fuzz::Targets()) {
    if (name == nullptr) std::printf("%s\n", t.name.data());
    if (name != nullptr && t.name == name) target = &t;
  }
  if (target == nullptr) std::exit(name == nullptr ? 0 : 2);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target->accepts({reinterpret_cast<const char*>(data), size});
  return 0;
}
