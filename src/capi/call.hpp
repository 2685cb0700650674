// call: what every function of keysieve.h does around its operation: read the structs, plan, find a
// workspace, run, and report. No exception leaves.
#pragma once

#include <cstdio>
#include <new>

#include "capi/reader.hpp"
#include "keysieve/plan.hpp"

namespace keysieve::capi {

// keysieve_options as read; points into itself, hence not copied.
struct Options {
  PlanOptions plan;
  Executor executor;
  Stream stream;
  keysieve_allocator allocator{};

  Options(Reader& in, const keysieve_options* given);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
};

// Fills in the caller's error, as much of it as it has room for, and returns the code.
int report(const Status& status, keysieve_error* error);

// A workspace that the caller's allocator lends for one call.
class LentWorkspace {
 public:
  LentWorkspace(const keysieve_allocator& allocator, std::size_t bytes);
  ~LentWorkspace();
  LentWorkspace(const LentWorkspace&) = delete;
  LentWorkspace& operator=(const LentWorkspace&) = delete;
  [[nodiscard]] bool lent() const { return memory_ != nullptr; }
  [[nodiscard]] Workspace view() const { return {memory_, bytes_}; }

 private:
  const keysieve_allocator& allocator_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

// ABI-18: turns whatever a callback or the standard library throws into a Status.
template <class Body>
Status guarded(const char* operation, Body&& body) noexcept {
  Status status;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    status.code = Code::out_of_memory;
  } catch (...) {
    status.code = Code::internal_error;
  }
  status.operation = operation;
  return status;
}

// One operation of keysieve.h. `read(Reader&, const CArgs&)` gives its C++ arguments.
template <class CArgs, class Args>
struct Operation {
  const char* name;
  Args (*read)(Reader&, const CArgs&);

  // Calls body(args, options) if the structs can be read.
  template <class Body>
  Status with(const CArgs* args, const keysieve_options* options, Body&& body) const noexcept {
    return guarded(name, [&] {
      Reader in(name);
      in.check().that(args != nullptr, "args", "ABI-09 arguments are given", "a null pointer");
      const Options read_options(in, options);
      const Args read_args = read(in, in.structure("args", args));
      return in.holds() ? body(read_args, read_options) : in.status();
    });
  }

  int run(const CArgs* args, const keysieve_options* options, void* workspace, std::size_t bytes,
          keysieve_error* error) const noexcept {
    const Status status = with(args, options, [&](const Args& a, const Options& o) {
      Plan<Args> planned;
      const Status refused = plan(a, o.plan, planned);
      if (!refused.ok()) return refused;
      if (workspace != nullptr || planned.workspace_bytes == 0 || o.allocator.allocate == nullptr)
        return keysieve::run(planned, a, {workspace, bytes}, o.stream);
      const LentWorkspace lent(o.allocator, planned.workspace_bytes);
      if (lent.lent()) return keysieve::run(planned, a, lent.view(), o.stream);
      Status nothing =
          Check(name)
              .that(false, "allocator", "ABI-10 the allocator lends workspace_bytes", "a null pointer")
              .status();
      nothing.code = Code::out_of_memory;
      return nothing;
    });
    return report(status, error);
  }

  int workspace_bytes(const CArgs* args, const keysieve_options* options, std::size_t* bytes,
                      keysieve_error* error) const noexcept {
    const Status status = with(args, options, [&](const Args& a, const Options& o) {
      Plan<Args> planned;
      Check check(name);
      check.that(bytes != nullptr, "bytes", "ABI-11 there is a place for the result", "a null pointer");
      if (!check.holds()) return check.status();
      const Status planning = plan(a, o.plan, planned);
      *bytes = planned.workspace_bytes;
      return planning;
    });
    return report(status, error);
  }

  int supports(const CArgs* args, const keysieve_options* options, keysieve_error* error) const noexcept {
    const Status status = with(args, options, [&](const Args& a, const Options& o) {
      Plan<Args> planned;
      return plan(a, o.plan, planned);
    });
    return report(status, error) == KEYSIEVE_OK ? 1 : 0;
  }

  std::size_t explain(const CArgs* args, const keysieve_options* options, char* text,
                      std::size_t capacity) const noexcept {
    std::size_t length = 0;
    const Status status = with(args, options, [&](const Args& a, const Options& o) {
      const Explanation explanation = keysieve::explain(a, o.plan);
      if (explanation.verdicts.empty()) return explanation.status;
      std::string lines;
      for (const Verdict& verdict : explanation.verdicts)
        lines += verdict.kernel + ": " + (verdict.chosen ? "chosen" : verdict.refusal) + "\n";
      length = lines.size();
      if (capacity > 0) text[lines.copy(text, capacity - 1)] = 0;
      return Status{};
    });
    return status.ok() ? length : status.message(text, capacity);
  }
};

}  // namespace keysieve::capi
