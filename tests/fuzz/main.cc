// Drives a fuzz target without libFuzzer: the files named on the command line, or N inputs from a fixed seed,
// so that every compiler runs it and every failure comes again. `contract_fuzz 20000 SEED`.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

int main(int argc, char** argv) {
  const long inputs = argc > 1 ? std::strtol(argv[1], nullptr, 10) : 20000;
  if (argc > 1 && inputs <= 0) {
    for (int i = 1; i < argc; ++i) {
      std::ifstream file(argv[i], std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    }
    return 0;
  }
  const unsigned long seed = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1;
  for (long i = 0; i < inputs; ++i) {
    // Each input has a seed of its own: a failure names it and can be run alone.
    std::mt19937_64 random(seed + static_cast<unsigned long>(i));
    std::vector<std::uint8_t> bytes(random() % 300);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    std::fflush(stderr);
    if (std::getenv("KEYSIEVE_FUZZ_VERBOSE") != nullptr)
      std::fprintf(stderr, "1 %lu\n", seed + static_cast<unsigned long>(i));
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%ld inputs from seed %lu\n", inputs, seed);
  return 0;
}
