// keysieve.h with anything in it that C can pass: lengths of structs, numbers for enums, dtypes, devices and
// shapes. What it gets must end in a code and a text, and a call that runs must not leave its tensors.
#include <algorithm>
#include <cstdio>

#include "capi/to_c.hpp"
#include "fuzz/calls.hpp"

namespace keysieve::fuzz {
namespace {

// A copy of a struct in memory of exactly its claimed size, or longer with rubbish behind.
template <class Struct>
class Resized {
 public:
  Resized(Source& in, const Struct& from) {
    std::size_t size = sizeof(Struct);
    const std::uint8_t pick = in.byte();
    if (pick % 8 == 1) size = 8 * (1 + pick / 8);
    if (pick % 8 == 2) size += 8;
    memory_ = std::unique_ptr<unsigned char, void (*)(void*)>(
        static_cast<unsigned char*>(std::calloc(std::max(size, sizeof(std::size_t)), 1)), std::free);
    std::memcpy(memory_.get(), &from, std::min(size, sizeof(Struct)));
    if (pick == 250 && size > sizeof(Struct)) memory_.get()[sizeof(Struct)] = 1;
    std::size_t claimed = size;
    if (pick == 251) claimed = in.below(8);
    if (pick == 252) claimed = ~in.word() % 5000 * 8 + 5;
    std::memcpy(memory_.get(), &claimed, sizeof claimed);
  }
  [[nodiscard]] const Struct* get() const { return reinterpret_cast<const Struct*>(memory_.get()); }

 private:
  std::unique_ptr<unsigned char, void (*)(void*)> memory_{nullptr, std::free};
};

void spoil_tensor(Source& in, DLTensor& t) {
  switch (in.below(8)) {
    case 0:
      t.ndim = in.coin() ? static_cast<int>(in.edge()) : static_cast<int>(in.below(5));
      break;
    case 1:
      t.dtype = {in.byte(), in.byte(), static_cast<std::uint16_t>(in.below(3))};
      break;
    case 2: {
      const int number = in.coin() ? static_cast<int>(in.below(16)) : static_cast<int>(in.word());
      std::memcpy(&t.device.device_type, &number, sizeof number);
      break;
    }
    case 3:
      t.strides = nullptr;
      break;
    case 4:
      t.shape = nullptr;
      break;
    case 5:
      t.byte_offset = in.word();
      break;
    case 6:
      t.data = nullptr;
      break;
    default:
      t.shape[in.below(4)] = in.edge();
  }
}

void require(bool holds, const char* what, const keysieve_error& error) {
  if (holds) return;
  std::fprintf(stderr, "%s: code %d, %s\n", what, error.code, error.text);
  std::abort();
}

template <class Args>
void try_call(Source& in, Args args, std::uint64_t seed) {
  Memory<Args> memory;
  const bool host = memory.attach(args, seed);
  test::CView view;
  view.null_strides = in.coin();
  auto c = test::to_c(args, view);
  const auto functions = test::c_functions(c);
  // What is spoilt below the contract's sight must not run: the owed part of a DLTensor is its caller's.
  const bool spoilt = in.below(4) == 3;
  if (spoilt)
    view.visit([&](DLTensor& t) {
      if (in.below(4) == 0) spoil_tensor(in, t);
    });
  view.visit_structs([&](auto& nested) {
    if (in.byte() == 255) nested.struct_size = in.byte() % (sizeof nested + 1);
  });
  using CArgs = decltype(c);
  const Resized<CArgs> given(in, c);

  keysieve_thread_pool* const no_pool = nullptr;
  require(keysieve_thread_pool_executor(no_pool) == nullptr, "an executor of nothing", {});
  const char* names[] = {"cpu.topk.filter", in.coin() ? "" : nullptr};
  keysieve_options plain{};
  plain.struct_size = sizeof plain;
  const char* const backends[] = {nullptr, "", "cpu", "reference", "cuda", "abacus"};
  plain.backend = backends[in.below(6)];
  if (in.below(8) == 0) plain.forbid = names;
  if (in.below(8) == 0) plain.forbid_count = static_cast<std::size_t>(in.below(2)) + (plain.forbid ? 1 : 0);
  keysieve_allocator allocator{sizeof allocator, nullptr,
                               [](void*, size_t bytes, size_t) { return workspace(bytes).release(); },
                               [](void*, void* lent, size_t) { std::free(lent); }};
  if (in.coin()) plain.allocator = &allocator;
  const Resized<keysieve_options> options(in, plain);

  keysieve_error error{};
  error.struct_size = sizeof error;
  std::size_t bytes = 0;
  const int answer = functions.workspace_bytes(given.get(), options.get(), &bytes, &error);
  require(answer == error.code && (answer == 0) == (error.text[0] == 0), "an error without words", error);
  require(functions.supports(given.get(), options.get(), &error) == (answer == 0 ? 1 : 0), "a contradiction",
          error);
  char text[40];
  const std::size_t length = functions.explain(given.get(), options.get(), text, sizeof text);
  require(std::strlen(text) == std::min(length, sizeof text - 1), "a text of another length", error);
  if (!host || spoilt || answer != 0 || bytes > 1 << 24) return;
  const bool lend = plain.allocator != nullptr && options.get()->struct_size == sizeof plain;
  const auto scratch = workspace(bytes);
  const int ran = functions.run(given.get(), options.get(), lend ? nullptr : scratch.get(), bytes, &error);
  require(ran == 0, "supported, and then refused", error);
}

}  // namespace
}  // namespace keysieve::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  keysieve::fuzz::Source in(data, bytes);
  const std::uint64_t seed = in.byte();
  keysieve::fuzz::with_call(in, [&](const auto& args) { keysieve::fuzz::try_call(in, args, seed); });
  return 0;
}
