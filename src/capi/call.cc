#include "capi/call.hpp"

#include <cstddef>
#include <type_traits>

namespace keysieve::capi {
namespace {

constexpr std::size_t kAlignment = 64;  // GEN-12

// A gap between fields, or after the last, would be where an older caller left garbage that a newer library
// takes for a field.
template <class... Structs>
constexpr bool have_no_gaps = (std::has_unique_object_representations_v<Structs> && ...);
static_assert(
    have_no_gaps<keysieve_error, keysieve_executor, keysieve_allocator, keysieve_options, keysieve_bounds,
                 keysieve_page_map, keysieve_index_store_args, keysieve_index_gather_args,
                 keysieve_mqa_logits_args, keysieve_candidate_blocks_args, keysieve_candidate_mask_args,
                 keysieve_topk_args, keysieve_translate_args, keysieve_packed_mask_args,
                 keysieve_mask_indices_args, keysieve_merge_states_args>);

}  // namespace

Options::Options(Reader& in, const keysieve_options* given) {
  const keysieve_options c = in.structure("options", given);
  if (c.backend != nullptr) plan.backend = c.backend;
  if (c.kernel != nullptr) plan.kernel = c.kernel;
  in.check().that(c.forbid != nullptr || c.forbid_count == 0, "forbid",
                  "ABI-12 the list of forbidden kernels", "a null pointer");
  if (!in.holds()) return;
  plan.forbid = {c.forbid, c.forbid_count};
  for (const char* name : plan.forbid)
    in.check().that(name != nullptr, "forbid", "ABI-13 forbidden kernels have names", "a null pointer");
  if (c.executor != nullptr) {
    const keysieve_executor e = in.structure("executor", c.executor);
    in.check()
        .that(!in.holds() || e.for_each != nullptr, "executor", "ABI-14 an executor has for_each",
              "a null pointer")
        .that(e.concurrency >= 0, "executor", "ABI-15 concurrency >= 0", e.concurrency);
    executor = {e.self, std::max(1, e.concurrency), e.for_each};
    plan.concurrency = executor.concurrency;
    stream.executor = &executor;
  }
  if (c.allocator != nullptr) {
    allocator = in.structure("allocator", c.allocator);
    in.check().that(!in.holds() || (allocator.allocate != nullptr && allocator.release != nullptr),
                    "allocator", "ABI-16 an allocator has allocate and release", "a null pointer");
  }
  stream.handle = c.stream;
}

int report(const Status& status, keysieve_error* error) {
  const int code = static_cast<int>(status.code);
  if (error == nullptr || error->struct_size < offsetof(keysieve_error, reserved)) return code;
  keysieve_error full{};
  full.code = code;
  full.operation = status.operation;
  full.argument = status.argument;
  full.rule = status.rule;
  if (!status.ok()) status.message(full.text, sizeof full.text);
  const std::size_t size = std::min(error->struct_size, sizeof full);
  full.struct_size = error->struct_size;
  std::memcpy(static_cast<void*>(error), &full, size);
  if (size > offsetof(keysieve_error, text)) reinterpret_cast<char*>(error)[size - 1] = 0;
  return code;
}

LentWorkspace::LentWorkspace(const keysieve_allocator& allocator, std::size_t bytes)
    : allocator_(allocator), bytes_(bytes), memory_(allocator.allocate(allocator.self, bytes, kAlignment)) {}

LentWorkspace::~LentWorkspace() {
  if (memory_ != nullptr) allocator_.release(allocator_.self, memory_, bytes_);
}

}  // namespace keysieve::capi
