// Every operation through C gives what it gives through C++: the same bytes, or the same refusal.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "capi/to_c.hpp"
#include "keysieve/plan.hpp"
#include "support/allocations.hpp"
#include "support/families.hpp"
#include "support/tensor_box.hpp"

namespace keysieve::test {
namespace {

// How one call is put into C.
struct Form {
  const char* name;
  std::uint64_t byte_offset;
  bool null_strides;
  std::int64_t padding;  // elements between rows, and a shifted start
  bool executor;
  bool allocator;
};

constexpr Form kForms[] = {{"plain", 0, false, 0, false, false},
                           {"byte offset", 64, false, 3, false, false},
                           {"null strides", 0, true, 0, false, true},
                           {"executor and allocator", 8, false, 1, true, true}};

struct Counts {
  int lent = 0, returned = 0, batches = 0, tasks = 0;
};

struct CallOptions {
  Counts counts;
  keysieve_executor executor{};
  keysieve_allocator allocator{};
  keysieve_options options{};

  CallOptions(const char* backend, const Form& form) {
    executor = {sizeof executor, &counts,
                [](void* self, std::int64_t tasks, void (*body)(void*, std::int64_t), void* context) {
                  auto& seen = *static_cast<Counts*>(self);
                  ++seen.batches;
                  // Backwards: any order is allowed.
                  for (std::int64_t task = tasks - 1; task >= 0; --task, ++seen.tasks) body(context, task);
                },
                3, 0};
    allocator = {sizeof allocator, &counts,
                 [](void* self, size_t bytes, size_t alignment) {
                   ++static_cast<Counts*>(self)->lent;
                   const WatchAllocations look_away(false);
                   void* memory =
                       std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                   std::memset(memory, 0xFF, bytes);
                   return memory;
                 },
                 [](void* self, void* memory, size_t) {
                   ++static_cast<Counts*>(self)->returned;
                   std::free(memory);
                 }};
    options.struct_size = sizeof options;
    options.backend = backend;
    if (form.executor) options.executor = &executor;
    if (form.allocator) options.allocator = &allocator;
  }
};

// The C++ call with what the C options say.
template <class Args>
Status run_cpp(const Args& args, const char* backend, const Form& form) {
  Plan<Args> planned;
  const Status status = plan(args, {.backend = backend, .concurrency = form.executor ? 3 : 1}, planned);
  if (!status.ok()) return status;
  std::vector<char> memory(planned.workspace_bytes + 64);
  void* data = memory.data();
  std::size_t space = memory.size();
  std::align(64, planned.workspace_bytes, data, space);
  return run(planned, args, {data, planned.workspace_bytes}, {});
}

// make(padding) gives a bundle: its args() and its boxes().
template <class Make>
void expect_same(Make make) {
  for (const char* backend : {"reference", "cpu"}) {
    for (const Form& form : kForms) {
      SCOPED_TRACE(std::string(backend) + ", " + form.name);
      auto expected = make(form.padding);
      auto got = make(form.padding);
      const Status status = run_cpp(expected.args(), backend, form);
      CView view;
      view.byte_offset = form.byte_offset;
      view.null_strides = form.null_strides;
      const auto args = to_c(got.args(), view);
      const auto functions = c_functions(args);
      CallOptions call(backend, form);
      keysieve_error error{};
      error.struct_size = sizeof error;
      std::size_t bytes = 77;
      EXPECT_EQ(functions.workspace_bytes(&args, &call.options, &bytes, &error),
                static_cast<int>(status.code));
      EXPECT_EQ(functions.supports(&args, &call.options, &error), status.ok() ? 1 : 0);
      std::vector<char> memory(bytes + 64);
      void* data = memory.data();
      std::size_t space = memory.size();
      std::align(64, bytes, data, space);
      const std::int64_t before = allocations();
      const int code = [&] {
        const WatchAllocations watch(std::string_view(backend) == "cpu");
        return form.allocator ? functions.run(&args, &call.options, nullptr, 0, &error)
                              : functions.run(&args, &call.options, data, bytes, &error);
      }();
      EXPECT_EQ(allocations(), before) << "GEN-16";
      EXPECT_EQ(code, static_cast<int>(status.code)) << error.text;
      EXPECT_EQ(error.code, code);
      EXPECT_STREQ(error.text, status.ok() ? "" : status.message().c_str());
      EXPECT_EQ(call.counts.lent, call.counts.returned);
      EXPECT_EQ(call.counts.lent, form.allocator && status.ok() && bytes > 0 ? 1 : 0);
      const std::string text = [&] {
        std::string words(functions.explain(&args, &call.options, nullptr, 0), ' ');
        functions.explain(&args, &call.options, words.data(), words.size() + 1);
        return words;
      }();
      EXPECT_EQ(text.find(": chosen\n") != std::string::npos, status.ok()) << text;
      const auto want = expected.boxes(), have = got.boxes();
      ASSERT_EQ(want.size(), have.size());
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(want[i]->bytes(), have[i]->bytes()) << "tensor " << i << " differs";
      if (!status.ok()) {
        EXPECT_EQ(status.code, Code::unsupported) << status.message();
        std::printf("  not there yet: %s\n", status.message().c_str());
      }
    }
  }
}

// A box filled from a generator.
template <class F>
TensorBox filled(DType dtype, std::initializer_list<std::int64_t> shape, std::int64_t padding, F&& value) {
  TensorBox box(dtype, shape, padding);
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  std::vector<std::int64_t> extents(shape);
  extents.insert(extents.begin(), static_cast<std::size_t>(4 - extents.size()), 1);
  std::int64_t i = 0;
  for (std::int64_t a = 0; a < extents[0]; ++a)
    for (std::int64_t b = 0; b < extents[1]; ++b)
      for (std::int64_t c = 0; c < extents[2]; ++c)
        for (std::int64_t d = 0; d < extents[3]; ++d, ++i) {
          const auto v = static_cast<double>(value(i));
          switch (shape.size()) {
            case 1:
              box.set(v, d);
              break;
            case 2:
              box.set(v, c, d);
              break;
            case 3:
              box.set(v, b, c, d);
              break;
            default:
              box.set(v, a, b, c, d);
          }
        }
  return box;
}

double wave(std::int64_t i) { return static_cast<double>((i * 2654435761u) % 1009) / 256.0 - 2.0; }

// A bundle of boxes and a way to make arguments of them.
template <class Args>
struct Bundle {
  std::deque<TensorBox> owned;
  std::function<Args(std::deque<TensorBox>&)> build;
  Args args() { return build(owned); }
  std::vector<TensorBox*> boxes() {
    std::vector<TensorBox*> all;
    for (TensorBox& box : owned) all.push_back(&box);
    return all;
  }
};

TEST(SameAsCpp, MqaLogits) {
  for (const bool paged : {false, true})
    for (const bool fp8 : {false, true})
      expect_same([&](std::int64_t padding) {
        const DType operand = fp8 ? DType::u8 : DType::bf16;
        const auto code = [fp8](std::int64_t i) { return fp8 ? static_cast<double>(i * 37 % 120) : wave(i); };
        Bundle<MqaLogitsArgs> b;
        b.owned.push_back(filled(operand, {4, 8, 128}, padding * 8, code));
        b.owned.push_back(filled(DType::f32, {4, 8}, padding, wave));
        b.owned.push_back(TensorBox::of<int>(DType::i32, {40, 17}));
        b.owned.push_back(TensorBox(DType::f32, {4, 64}, padding));
        if (paged) {
          b.owned.push_back(fp8 ? filled(operand, {3, 32 * 132}, 0, code)
                                : filled(operand, {3, 32, 128}, 0, code));
          b.owned.push_back(TensorBox::of<int>(DType::i32, {2, 0, 1, 2}));
        } else {
          b.owned.push_back(filled(operand, {64, 128}, padding * 8, code));
          b.owned.push_back(
              filled(DType::f32, {64}, 0, [](auto i) { return 0.5 + 0.01 * static_cast<double>(i); }));
        }
        b.build = [paged, fp8](auto& o) {
          MqaLogitsArgs a;
          a.q = o[0].tensor();
          a.weights = o[1].tensor();
          a.bounds.form = BoundsForm::lengths;
          a.bounds.next_n = 2;
          a.bounds.end = o[2].tensor();
          a.scores = o[3].tensor();
          a.tail = Tail::neg_inf;
          if (paged) {
            a.cache = o[4].tensor();
            a.page_tokens = 32;
            a.page_table = o[5].tensor();
            a.page_table.rank = 2;
            a.page_table.shape[0] = a.page_table.shape[1] = 2;
            a.page_table.stride[0] = 2;
            a.page_table.stride[1] = 1;
          } else {
            a.keys = o[4].tensor();
            if (fp8) a.key_scales = o[5].tensor();
          }
          return a;
        };
        return b;
      });
}

TEST(SameAsCpp, CandidateBlocks) {
  expect_same([&](std::int64_t padding) {
    Bundle<CandidateBlocksArgs> b;
    b.owned.push_back(filled(DType::f32, {3, 90}, padding, wave));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {90, 31, 0}));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {4, 0, 5}));
    b.owned.push_back(TensorBox(DType::i32, {3, 7}, padding));
    b.build = [](auto& o) {
      CandidateBlocksArgs a;
      a.scores = o[0].tensor();
      a.bounds.end = o[1].tensor();
      a.bounds.start = o[2].tensor();
      a.candidates = o[3].tensor();
      a.block_size = 4;
      a.nan = NanPolicy::drop;
      a.order = CandidateOrder::by_score;
      return a;
    };
    return b;
  });
}

TEST(SameAsCpp, CandidateMask) {
  for (const WriteRange range : {WriteRange::live, WriteRange::full, WriteRange::window})
    for (const bool edge : {false, true})
      expect_same([&](std::int64_t padding) {
        Bundle<CandidateMaskArgs> b;
        b.owned.push_back(filled(DType::bf16, {3, 90}, padding, wave));
        b.owned.push_back(TensorBox::of<std::int64_t>(DType::i64, {90, 31, 0}));
        b.owned.push_back(TensorBox::of<int>(DType::i32, {4, 0, 5}));
        b.owned.push_back(filled(DType::i32, {3, 5}, padding, [](auto i) { return i * 11 % 37 - 1; }));
        b.build = [range, edge](auto& o) {
          CandidateMaskArgs a;
          a.scores = o[0].tensor();
          a.bounds.end = o[1].tensor();
          a.bounds.start = o[2].tensor();
          a.candidates = o[3].tensor();
          a.block_size = 3;
          a.write_range = range;
          a.edge = edge;
          return a;
        };
        return b;
      });
}

TEST(SameAsCpp, Topk) {
  for (const TopkSpace space : {TopkSpace::local, TopkSpace::absolute, TopkSpace::offset, TopkSpace::paged})
    for (const bool compact : {false, true})
      expect_same([&](std::int64_t padding) {
        Bundle<TopkArgs> b;
        b.owned.push_back(filled(DType::f32, {4, 64}, padding, wave));
        b.owned.push_back(TensorBox::of<int>(DType::i32, {400, 9, 64, 0}));
        b.owned.push_back(filled(DType::i32, {4, 16}, padding, [](auto i) { return i * 11 % 70 - 1; }));
        b.owned.push_back(TensorBox::of<std::int64_t>(DType::i64, {5, 50, 500, 5000}));
        b.owned.push_back(filled(DType::i32, {2, 40}, padding, [](auto i) { return i * 7 % 90 - 1; }));
        b.owned.push_back(TensorBox(DType::i32, {4, 12}, padding));
        b.owned.push_back(TensorBox(DType::f32, {4, 12}, padding));
        b.owned.push_back(TensorBox(DType::i32, {4}));
        b.owned.push_back(TensorBox(DType::i32, {4, 12}, padding));
        b.build = [space, compact](auto& o) {
          TopkArgs a;
          a.scores = o[0].tensor();
          a.bounds.end = o[1].tensor();
          a.k = 12;
          a.order = compact ? TopkOrder::by_score : TopkOrder::ascending_column;
          a.skip_neg_inf = compact;
          a.candidates = o[2].tensor();
          a.block_size = 4;
          a.layout = compact ? ScoreLayout::compact : ScoreLayout::dense;
          a.space = space;
          if (space == TopkSpace::offset) a.offset = o[3].tensor();
          a.out = o[5].tensor();
          a.values = o[6].tensor();
          a.counts = o[7].tensor();
          if (space == TopkSpace::paged) {
            a.pages.page_table = o[4].tensor();
            a.pages.page_size = 6;
            a.pages.pool_pages = 80;
            a.pages.next_n = 2;
            a.raw = o[8].tensor();
          }
          return a;
        };
        return b;
      });
}

TEST(SameAsCpp, IndexStore) {
  for (const int variant : {0, 1, 2, 3, 4})
    expect_same([&](std::int64_t padding) {
      Bundle<IndexStoreArgs> b;
      b.owned.push_back(filled(variant % 2 == 0 ? DType::bf16 : DType::f32, {5, 64}, padding, wave));
      b.owned.push_back(TensorBox::of<int>(DType::i64, {3, -1, 0, 40, 9}));
      b.owned.push_back(filled(DType::u8, {3, 300}, padding, [](auto i) { return i * 7 % 256; }));
      b.build = [variant](auto& o) {
        IndexStoreArgs a;
        a.keys = o[0].tensor();
        a.slots = o[1].tensor();
        a.cache = o[2].tensor();
        a.page_tokens = 4;
        a.format = variant < 3 ? KeyFormat::fp8 : KeyFormat::mxfp4;
        a.scale = variant == 1 ? KeyScale::ue8m0 : KeyScale::exact;
        a.reciprocal = variant == 2;
        a.ties_down = variant == 4;
        return a;
      };
      return b;
    });
}

TEST(SameAsCpp, IndexGather) {
  for (const int variant : {0, 1, 2})
    expect_same([&](std::int64_t padding) {
      Bundle<IndexGatherArgs> b;
      const bool fp8 = variant < 2;
      b.owned.push_back(filled(DType::u8, {4, 300}, padding, [](auto i) { return i * 7 % 256; }));
      b.owned.push_back(variant == 1 ? TensorBox::of<int>(DType::i32, {3, 0, 9, 1, 2})
                                     : filled(DType::i32, {2, 3}, padding, [](auto i) { return i * 5 % 4; }));
      b.owned.push_back(TensorBox::of<int>(DType::i64, {0, 2, 5}));
      b.owned.push_back(TensorBox::of<int>(DType::i32, {1, 6, 9}));
      b.owned.push_back(TensorBox::of<int>(DType::i64, {0, 3}));
      b.owned.push_back(TensorBox(DType::u8, {11, fp8 ? 64 : 32}, padding));
      b.owned.push_back(fp8 ? TensorBox(DType::f32, {11}) : TensorBox(DType::u8, {11, 2}, padding));
      b.build = [variant](auto& o) {
        IndexGatherArgs a;
        a.cache = o[0].tensor();
        a.page_tokens = 4;
        a.format = variant < 2 ? KeyFormat::fp8 : KeyFormat::mxfp4;
        a.page_table = o[1].tensor();
        if (variant == 1) a.table_offsets = o[2].tensor();
        a.row_offsets = o[3].tensor();
        a.start = o[4].tensor();
        a.keys = o[5].tensor();
        a.scales = o[6].tensor();
        return a;
      };
      return b;
    });
}

TEST(SameAsCpp, PrepareQueries) {
  for (const int variant : {0, 1, 2, 3})
    expect_same([&](std::int64_t padding) {
      Bundle<PrepareQueriesArgs> b;
      const bool fp8 = variant < 3;
      b.owned.push_back(filled(variant % 2 == 0 ? DType::bf16 : DType::f32, {3, 5, 128}, padding * 8, wave));
      b.owned.push_back(filled(DType::f32, {3, 5}, padding, wave));
      b.owned.push_back(filled(DType::f32, {9, 64}, padding, wave));
      b.owned.push_back(TensorBox::of<int>(DType::i32, {4, -1, 8}));
      b.owned.push_back(TensorBox(DType::u8, {3, 5, fp8 ? 128 : 64}, padding));
      b.owned.push_back(TensorBox(DType::u8, {3, 5, 4}, padding));
      b.owned.push_back(TensorBox(DType::f32, {3, 5}, padding));
      b.build = [variant, fp8](auto& o) {
        PrepareQueriesArgs a;
        a.q = o[0].tensor();
        a.weights = o[1].tensor();
        a.cos_sin = o[2].tensor();
        a.positions = o[3].tensor();
        a.pairing = variant == 1 ? RopePairing::adjacent : RopePairing::halves;
        a.place = variant == 2 ? RopePlace::last : RopePlace::first;
        a.hadamard = variant != 0;
        a.format = fp8 ? KeyFormat::fp8 : KeyFormat::mxfp4;
        a.scale = variant == 1 ? KeyScale::ue8m0 : KeyScale::exact;
        a.reciprocal = variant == 2;
        a.tiny_floor = variant == 1;
        a.ties_down = !fp8;
        a.softmax_scale = 0.7f;
        a.head_scale = 0.125f;
        a.codes = o[4].tensor();
        if (!fp8) a.scales = o[5].tensor();
        a.folded = o[6].tensor();
        return a;
      };
      return b;
    });
}

TEST(SameAsCpp, Translate) {
  for (const TranslateMode mode : {TranslateMode::keep, TranslateMode::compact})
    expect_same([&](std::int64_t padding) {
      Bundle<TranslateArgs> b;
      b.owned.push_back(filled(DType::i32, {4, 12}, padding, [](auto i) { return i * 11 % 70 - 1; }));
      b.owned.push_back(filled(DType::i32, {2, 10}, padding, [](auto i) { return i * 7 % 90 - 1; }));
      b.owned.push_back(TensorBox::of<int>(DType::i32, {1, 0, 5, -1}));
      b.owned.push_back(TensorBox::of<int>(DType::i32, {0, 3, 0, 0}));
      b.owned.push_back(TensorBox(DType::i64, {4, 12}, padding));
      b.owned.push_back(TensorBox(DType::i32, {4}));
      b.owned.push_back(TensorBox(DType::i32, {4, 12}, padding));
      b.build = [mode](auto& o) {
        TranslateArgs a;
        a.indices = o[0].tensor();
        a.pages.page_table = o[1].tensor();
        a.pages.row_to_request = o[2].tensor();
        a.pages.table_start = o[3].tensor();
        a.pages.page_size = 7;
        a.mode = mode;
        a.slots = o[4].tensor();
        a.counts = o[5].tensor();
        a.raw = o[6].tensor();
        return a;
      };
      return b;
    });
}

TEST(SameAsCpp, PackedMask) {
  for (const int source : {0, 1, 2})
    expect_same([&](std::int64_t padding) {
      Bundle<PackedMaskArgs> b;
      b.owned.push_back(TensorBox::of<int>(DType::i32, {0, 3, 5}));
      b.owned.push_back(TensorBox::of<int>(DType::i32, {2, 0}));
      b.owned.push_back(TensorBox::of<int>(DType::i32, {130, 77}));
      b.owned.push_back(filled(DType::i32, {5, 9}, padding, [](auto i) { return i * 11 % 140 - 1; }));
      b.owned.push_back(filled(DType::f32, {5, 150}, padding, wave));
      b.owned.push_back(TensorBox::of<double>(DType::f32, {0, 1, -1, 0.5, 0}));
      b.owned.push_back(TensorBox::of<int>(DType::i32, {100, 99, 150, 20, 0}));
      b.owned.push_back(TensorBox(DType::u32, {2, 128, 8}));
      b.owned.push_back(TensorBox(DType::u32, {2, 1, 1}));
      b.owned.push_back(TensorBox(DType::u32, {2, 1, 1}));
      b.build = [source](auto& o) {
        PackedMaskArgs a;
        a.q_start = o[0].tensor();
        a.key_first = o[1].tensor();
        a.key_count = o[2].tensor();
        if (source == 0) a.indices = o[3].tensor();
        if (source == 1) a.candidates = o[3].tensor();
        if (source == 2) {
          a.scores = o[4].tensor();
          a.thresholds = o[5].tensor();
        }
        if (source != 0) a.bounds.end = o[6].tensor();
        a.block_size = 3;
        a.mask = o[7].tensor();
        a.any = o[8].tensor();
        a.all = o[9].tensor();
        return a;
      };
      return b;
    });
}

TEST(SameAsCpp, MaskIndices) {
  expect_same([&](std::int64_t padding) {
    Bundle<MaskIndicesArgs> b;
    b.owned.push_back(TensorBox::of<std::int64_t>(DType::i64, {0, 3, 5}));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {2, 0}));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {130, 77}));
    b.owned.push_back(filled(DType::u32, {2, 128, 8}, 0, [](auto i) { return i * 40503 % 100000; }));
    b.owned.push_back(TensorBox(DType::i32, {5, 9}, padding));
    b.owned.push_back(TensorBox(DType::i32, {5}));
    b.build = [](auto& o) {
      MaskIndicesArgs a;
      a.q_start = o[0].tensor();
      a.key_first = o[1].tensor();
      a.key_count = o[2].tensor();
      a.mask = o[3].tensor();
      a.out = o[4].tensor();
      a.counts = o[5].tensor();
      return a;
    };
    return b;
  });
}

TEST(SameAsCpp, MaskedMha) {
  expect_same([&](std::int64_t padding) {
    Bundle<MaskedMhaArgs> b;
    b.owned.push_back(filled(DType::bf16, {5, 2, 192}, padding * 8, wave));
    b.owned.push_back(filled(DType::bf16, {20, 2, 192}, padding * 8, wave));
    b.owned.push_back(filled(DType::bf16, {20, 2, 128}, padding * 8, wave));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {0, 3, 5}));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {0, 12, 20}));
    b.owned.push_back(filled(DType::u32, {2, 128, 4}, 0, [](auto i) { return i * 40503 % 100000; }));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {1, 0}));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {9, 6}));
    b.owned.push_back(TensorBox(DType::bf16, {5, 2, 128}, padding * 8));
    b.owned.push_back(TensorBox(DType::f32, {5, 2}, padding));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {20, 16}));
    b.owned.push_back(TensorBox::of<std::int64_t>(DType::i64, {21, 8}));
    b.owned.push_back(TensorBox::of<double>(DType::f32, {1, -1}));
    b.build = [](auto& o) {
      MaskedMhaArgs a;
      a.q = o[0].tensor();
      a.k = o[1].tensor();
      a.v = o[2].tensor();
      a.q_start = o[3].tensor();
      a.k_start = o[4].tensor();
      a.mask = o[5].tensor();
      a.key_offset = o[6].tensor();
      a.q_offset = o[7].tensor();
      a.causal = true;
      a.softmax_scale = 0.07f;
      a.out = o[8].tensor();
      a.lse = o[9].tensor();
      a.q_total = o[10].tensor();
      a.k_total = o[11].tensor();
      a.sink = o[12].tensor();
      a.lse_form = {LseBase::two, LseEmpty::plus_infinity, true};
      return a;
    };
    return b;
  });
}

TEST(SameAsCpp, SparseMla) {
  expect_same([&](std::int64_t padding) {
    Bundle<SparseMlaArgs> b;
    b.owned.push_back(filled(DType::bf16, {3, 4, 576}, padding * 8, wave));
    b.owned.push_back(filled(DType::bf16, {2, 16, 576}, padding * 8, wave));
    b.owned.push_back(filled(DType::i32, {3, 10}, padding, [](auto i) { return i * 11 % 40 - 1; }));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {10, 4, 0}));
    b.owned.push_back(filled(DType::bf16, {3, 8, 576}, 0, wave));
    b.owned.push_back(filled(DType::i32, {3, 5}, padding, [](auto i) { return i * 7 % 26 - 1; }));
    b.owned.push_back(TensorBox::of<int>(DType::i32, {5, 5, 1}));
    b.owned.push_back(TensorBox::of<double>(DType::f32, {0, 1, -1, 3}));
    b.owned.push_back(TensorBox(DType::bf16, {3, 4, 512}, padding * 8));
    b.owned.push_back(TensorBox(DType::f32, {3, 4}, padding));
    b.build = [](auto& o) {
      SparseMlaArgs a;
      a.lse_form = {LseBase::two, LseEmpty::plus_infinity, true};
      a.q = o[0].tensor();
      a.cache = o[1].tensor();
      a.indices = o[2].tensor();
      a.lengths = o[3].tensor();
      a.extra_cache = o[4].tensor();
      a.extra_indices = o[5].tensor();
      a.extra_lengths = o[6].tensor();
      a.softmax_scale = 0.04f;
      a.sink = o[7].tensor();
      a.out = o[8].tensor();
      a.lse = o[9].tensor();
      return a;
    };
    return b;
  });
}

TEST(SameAsCpp, MergeStates) {
  expect_same([&](std::int64_t padding) {
    Bundle<MergeStatesArgs> b;
    b.owned.push_back(filled(DType::bf16, {2, 3, 4, 16}, padding * 8, wave));
    b.owned.push_back(filled(DType::f32, {2, 3, 4}, padding, wave));
    b.owned.push_back(TensorBox::of<double>(DType::f32, {0, 1, -1, 3}));
    b.owned.push_back(TensorBox(DType::f32, {3, 4, 16}, padding));
    b.owned.push_back(TensorBox(DType::f32, {3, 4}, padding));
    b.build = [](auto& o) {
      MergeStatesArgs a;
      a.outs = o[0].tensor();
      a.lses = o[1].tensor();
      a.lses_form.base = LseBase::two;
      a.lse_form = {LseBase::two, LseEmpty::plus_infinity, true};
      a.sink = o[2].tensor();
      a.out = o[3].tensor();
      a.lse = o[4].tensor();
      return a;
    };
    return b;
  });
}

}  // namespace
}  // namespace keysieve::test
