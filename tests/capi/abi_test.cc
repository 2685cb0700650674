// What C callers meet besides the operations: struct sizes, DLPack's corners, options, callbacks and errors.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>

#include "capi/to_c.hpp"
#include "keysieve/plan.hpp"
#include "support/tensor_box.hpp"

extern "C" int c11_candidate_mask(void);

namespace keysieve::test {
namespace {

// A call that works, for tests to break.
struct Mask {
  TensorBox scores{DType::f32, {2, 64}}, end = TensorBox::of<int>(DType::i32, {64, 20}),
                                         candidates{DType::i32, {2, 3}};
  CView view;
  keysieve_bounds bounds;
  keysieve_candidate_mask_args args;
  DLTensor scores_tensor, candidates_tensor;
  std::int64_t shape[5] = {2, 64, 1, 1, 1};
  keysieve_options options{};
  keysieve_error error{};
  alignas(64) unsigned char workspace[4096];

  Mask() {
    scores.fill([](auto i, auto j) { return i * 64 + j; });
    candidates.fill([](auto i, auto j) { return i + j * 2; });
    CandidateMaskArgs a;
    a.scores = scores.tensor();
    a.bounds.end = end.tensor();
    a.candidates = candidates.tensor();
    args = to_c(a, view);
    bounds = *args.bounds;
    args.bounds = &bounds;
    scores_tensor = *args.scores;
    scores_tensor.shape = shape;
    args.scores = &scores_tensor;
    candidates_tensor = *args.candidates;
    args.candidates = &candidates_tensor;
    options.struct_size = sizeof options;
    error.struct_size = sizeof error;
  }
  int run() { return keysieve_candidate_mask(&args, &options, workspace, sizeof workspace, &error); }
  // The rule's id, "" if the call worked.
  std::string broken() {
    run();
    return std::string(error.rule).substr(0, 6);
  }
};

TEST(Abi, HeaderIsC11) { EXPECT_EQ(c11_candidate_mask(), 0); }

TEST(Abi, AbsentOptionsAndErrorAreFine) {
  Mask m;
  EXPECT_EQ(keysieve_candidate_mask(&m.args, nullptr, m.workspace, sizeof m.workspace, nullptr), KEYSIEVE_OK);
  m.args.block_size = -1;
  EXPECT_EQ(keysieve_candidate_mask(&m.args, nullptr, m.workspace, sizeof m.workspace, nullptr),
            KEYSIEVE_INVALID_ARGUMENT);
}

TEST(Abi, ABI_01_struct_sizes) {
  Mask m;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{4}, sizeof m.args - 4, std::size_t{5000}, ~std::size_t{7}}) {
    m.args.struct_size = size;
    EXPECT_EQ(m.broken(), "ABI-01") << size;
  }
  m.args.struct_size = sizeof m.args;
  m.bounds.struct_size = 0;
  EXPECT_EQ(m.broken(), "ABI-01");
  EXPECT_STREQ(m.error.argument, "bounds");
  m.bounds.struct_size = sizeof m.bounds;
  m.options.struct_size = 1;
  EXPECT_EQ(m.broken(), "ABI-01");
  EXPECT_STREQ(m.error.text,
               "candidate_mask: options: expected struct_size is sizeof the struct (ABI-01), got 1");
}

TEST(Abi, OlderStructsMeanDefaults) {
  // Without write_range and edge, and with a block size of the default.
  Mask whole, old;
  whole.args.block_size = 8;
  whole.args.write_range = KEYSIEVE_WRITE_LIVE;
  whole.args.edge = 0;
  EXPECT_EQ(whole.run(), KEYSIEVE_OK);
  old.args.struct_size = offsetof(keysieve_candidate_mask_args, block_size);
  old.args.block_size = 5;
  old.args.write_range = KEYSIEVE_WRITE_FULL;
  old.bounds.struct_size = offsetof(keysieve_bounds, row_repeat);
  EXPECT_EQ(old.run(), KEYSIEVE_OK) << old.error.text;
  EXPECT_EQ(whole.scores.bytes(), old.scores.bytes());
}

TEST(Abi, ABI_02_newer_structs) {
  Mask m;
  struct {
    keysieve_candidate_mask_args known;
    std::int64_t later[2];
  } newer{m.args, {0, 0}};
  newer.known.struct_size = sizeof newer;
  EXPECT_EQ(keysieve_candidate_mask(&newer.known, nullptr, m.workspace, sizeof m.workspace, &m.error),
            KEYSIEVE_OK);
  newer.later[1] = 1;
  EXPECT_EQ(keysieve_candidate_mask(&newer.known, nullptr, m.workspace, sizeof m.workspace, &m.error),
            KEYSIEVE_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(m.error.rule).substr(0, 6), "ABI-02");
}

TEST(Abi, OlderErrorsGetWhatFits) {
  Mask m;
  m.args.block_size = -1;
  std::memset(&m.error, 0x5a, sizeof m.error);
  m.error.struct_size = offsetof(keysieve_error, text) + 16;
  EXPECT_EQ(m.run(), KEYSIEVE_INVALID_ARGUMENT);
  EXPECT_EQ(m.error.struct_size, offsetof(keysieve_error, text) + 16);
  EXPECT_STREQ(m.error.text, "candidate_mask:");
  EXPECT_EQ(m.error.text[16], 0x5a);
  EXPECT_STREQ(m.error.operation, "candidate_mask");
  // Not even room for the code: left alone.
  std::memset(&m.error, 0x5a, sizeof m.error);
  m.error.struct_size = 8;
  EXPECT_EQ(m.run(), KEYSIEVE_INVALID_ARGUMENT);
  EXPECT_EQ(m.error.code, 0x5a5a5a5a);
}

TEST(Abi, ABI_03_enums) {
  for (const int number : {-1, 3, 1 << 20}) {
    Mask m;
    m.args.write_range = number;
    EXPECT_EQ(m.broken(), "ABI-03");
    Mask n;
    n.args.edge = number;
    EXPECT_EQ(n.broken(), "ABI-03");
    Mask b;
    b.bounds.form = number;
    EXPECT_EQ(b.broken(), "ABI-03");
  }
}

TEST(Abi, ABI_04_dtypes) {
  Mask m;
  for (const DLDataType type : {DLDataType{kDLFloat, 16, 1},
                                {kDLFloat, 64, 1},
                                {kDLFloat, 32, 2},
                                {kDLInt, 8, 1},
                                {kDLUInt, 64, 1},
                                {12, 8, 1},
                                {10, 4, 1},
                                {255, 255, 65535}}) {
    m.scores_tensor.dtype = type;
    EXPECT_EQ(m.broken(), "ABI-04");
  }
  EXPECT_STREQ(m.error.text,
               "candidate_mask: scores: expected dtype is float32, bfloat16, int32, int64, uint8, uint32, "
               "float8_e4m3fn or float8_e8m0fnu (ABI-04), got code, bits, lanes [255, 255, 65535]");
  // These are bytes, which scores may not be.
  for (const DLDataType type : {DLDataType{kDLUInt, 8, 1}, {10, 8, 1}, {14, 8, 1}}) {
    m.scores_tensor.dtype = type;
    EXPECT_EQ(m.broken(), "MSK-02");
    EXPECT_NE(std::string(m.error.text).find("got u8"), std::string::npos);
  }
}

TEST(Abi, ABI_05_devices) {
  Mask m;
  m.scores_tensor.device = {kDLROCM, 0};
  EXPECT_EQ(m.broken(), "ABI-05");
  m.scores_tensor.device = {kDLCUDAHost, 3};
  EXPECT_EQ(m.broken(), "");
  m.scores_tensor.device = {kDLCUDA, 0};
  EXPECT_EQ(m.broken(), "GEN-04");
  m.scores_tensor.device.device_type = static_cast<DLDeviceType>(99);
  EXPECT_EQ(m.broken(), "ABI-05");
}

TEST(Abi, ABI_06_to_ABI_08_shapes) {
  Mask m;
  for (const int ndim : {-1, 0, 5}) {
    m.scores_tensor.ndim = ndim;
    EXPECT_EQ(m.broken(), "ABI-06");
  }
  m.scores_tensor.ndim = 2;
  m.scores_tensor.shape = nullptr;
  EXPECT_EQ(m.broken(), "ABI-07");
  m.scores_tensor.shape = m.shape;
  m.scores_tensor.strides = nullptr;
  m.shape[0] = m.shape[1] = std::int64_t{1} << 40;
  EXPECT_EQ(m.broken(), "ABI-08");
}

TEST(Abi, StridesOfSingleRowsMayBeAnything) {
  Mask one, other;
  std::int64_t strides[2] = {1, 1};
  for (Mask* m : {&one, &other}) {
    m->shape[0] = 1;
    m->scores_tensor.strides = nullptr;
    m->candidates_tensor.shape[0] = 1;
    const_cast<DLTensor*>(m->bounds.end)->shape[0] = 1;
  }
  other.scores_tensor.strides = strides;  // what DLPack makes of a single row
  EXPECT_EQ(one.run(), KEYSIEVE_OK) << one.error.text;
  EXPECT_EQ(other.run(), KEYSIEVE_OK) << other.error.text;
  EXPECT_EQ(one.scores.bytes(), other.scores.bytes());
}

TEST(Abi, ByteOffsetIsAdded) {
  Mask m;
  m.scores_tensor.byte_offset = 2;
  EXPECT_EQ(m.broken(), "GEN-06");
  m.scores_tensor.byte_offset = ~std::uint64_t{0} - 3;  // wraps to four bytes before
  m.scores_tensor.data = static_cast<char*>(m.scores_tensor.data) + 4;
  EXPECT_EQ(m.broken(), "");
  m.scores_tensor.data = nullptr;
  EXPECT_EQ(m.broken(), "GEN-05");
}

TEST(Abi, ABI_09_arguments) {
  Mask m;
  EXPECT_EQ(keysieve_candidate_mask(nullptr, nullptr, nullptr, 0, &m.error), KEYSIEVE_INVALID_ARGUMENT);
  EXPECT_STREQ(m.error.text,
               "candidate_mask: args: expected arguments are given (ABI-09), got a null pointer");
  EXPECT_EQ(keysieve_candidate_mask_supports(nullptr, nullptr, nullptr), 0);
  m.args.scores = nullptr;
  EXPECT_EQ(m.broken(), "MSK-01");
  Mask n;
  n.args.bounds = nullptr;
  EXPECT_EQ(n.broken(), "BND-01");
}

TEST(Abi, WorkspaceTooSmallOrAbsent) {
  Mask m;
  const std::vector<unsigned char> before = m.scores.bytes();
  EXPECT_EQ(keysieve_candidate_mask(&m.args, nullptr, m.workspace, 1, &m.error),
            KEYSIEVE_WORKSPACE_TOO_SMALL);
  EXPECT_EQ(keysieve_candidate_mask(&m.args, nullptr, nullptr, 1 << 20, &m.error),
            KEYSIEVE_WORKSPACE_TOO_SMALL);
  EXPECT_EQ(std::string(m.error.rule).substr(0, 6), "GEN-11");
  EXPECT_EQ(before, m.scores.bytes());
}

TEST(Abi, ABI_10_allocators_that_have_nothing) {
  Mask m;
  keysieve_allocator nothing{sizeof nothing, nullptr, [](void*, size_t, size_t) -> void* { return nullptr; },
                             [](void*, void*, size_t) { ADD_FAILURE() << "nothing was lent"; }};
  m.options.allocator = &nothing;
  EXPECT_EQ(m.run(), KEYSIEVE_OK) << "a workspace was given";
  EXPECT_EQ(keysieve_candidate_mask(&m.args, &m.options, nullptr, 0, &m.error), KEYSIEVE_OUT_OF_MEMORY);
  EXPECT_EQ(std::string(m.error.rule).substr(0, 6), "ABI-10");
}

TEST(Abi, ABI_11_workspace_query) {
  Mask m;
  EXPECT_EQ(keysieve_candidate_mask_workspace_bytes(&m.args, nullptr, nullptr, &m.error),
            KEYSIEVE_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(m.error.rule).substr(0, 6), "ABI-11");
  // Shapes alone decide.
  m.scores_tensor.data = nullptr;
  std::size_t bytes = 0;
  EXPECT_EQ(keysieve_candidate_mask_workspace_bytes(&m.args, nullptr, &bytes, &m.error), KEYSIEVE_OK);
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(keysieve_candidate_mask_supports(&m.args, nullptr, &m.error), 1);
}

TEST(Abi, ABI_12_to_ABI_16_options) {
  Mask m;
  m.options.forbid_count = 1;
  EXPECT_EQ(m.broken(), "ABI-12");
  const char* names[] = {nullptr};
  m.options.forbid = names;
  EXPECT_EQ(m.broken(), "ABI-13");
  names[0] = "cpu.candidate_mask.gaps";
  EXPECT_EQ(m.broken(), "GEN-08");
  EXPECT_EQ(m.error.code, KEYSIEVE_UNSUPPORTED);
  EXPECT_NE(std::string(m.error.text).find("cpu.candidate_mask.gaps: forbidden by the caller"),
            std::string::npos);
  m.options.forbid_count = 0;
  m.options.backend = "abacus";
  EXPECT_EQ(m.broken(), "GEN-08");
  m.options.backend = "";
  m.options.kernel = "cpu.candidate_mask.gaps";
  EXPECT_EQ(m.broken(), "");

  keysieve_executor executor{};
  executor.struct_size = sizeof executor;
  m.options.executor = &executor;
  EXPECT_EQ(m.broken(), "ABI-14");
  executor.for_each = [](void*, std::int64_t, void (*)(void*, std::int64_t), void*) {};
  executor.concurrency = -1;
  EXPECT_EQ(m.broken(), "ABI-15");
  m.options.executor = nullptr;
  keysieve_allocator allocator{};
  allocator.struct_size = sizeof allocator;
  m.options.allocator = &allocator;
  EXPECT_EQ(m.broken(), "ABI-16");
}

// ABI-18. (ABI-17 is owed: nothing can see it.)
TEST(Abi, ABI_18_NoExceptionLeaves) {
  Mask m;
  keysieve_executor throwing{sizeof throwing, nullptr,
                             [](void*, std::int64_t, void (*)(void*, std::int64_t), void*) {
                               throw std::runtime_error("the pool is closed");
                             },
                             2, 0};
  m.options.executor = &throwing;
  EXPECT_EQ(m.run(), KEYSIEVE_INTERNAL_ERROR);
  EXPECT_STREQ(m.error.text, "candidate_mask: a callback threw, or keysieve has a defect");
  m.options.executor = nullptr;
  keysieve_allocator allocator{sizeof allocator, nullptr,
                               [](void*, size_t, size_t) -> void* { throw std::bad_alloc(); },
                               [](void*, void*, size_t) {}};
  m.options.allocator = &allocator;
  EXPECT_EQ(keysieve_candidate_mask(&m.args, &m.options, nullptr, 0, &m.error), KEYSIEVE_OUT_OF_MEMORY);
}

TEST(Abi, ThreadPool) {
  keysieve_thread_pool* pool = keysieve_thread_pool_create(2);
  ASSERT_NE(pool, nullptr);
  const keysieve_executor* executor = keysieve_thread_pool_executor(pool);
  EXPECT_EQ(executor->concurrency, 2);
  std::atomic<int> tasks{0};
  executor->for_each(
      executor->self, 100, [](void* context, std::int64_t) { ++*static_cast<std::atomic<int>*>(context); },
      &tasks);
  EXPECT_EQ(tasks, 100);
  Mask alone, pooled;
  pooled.options.executor = executor;
  EXPECT_EQ(alone.run(), KEYSIEVE_OK);
  EXPECT_EQ(pooled.run(), KEYSIEVE_OK);
  EXPECT_EQ(alone.scores.bytes(), pooled.scores.bytes());
  keysieve_thread_pool_destroy(pool);
  keysieve_thread_pool_destroy(nullptr);
  EXPECT_EQ(keysieve_thread_pool_executor(nullptr), nullptr);
}

TEST(Abi, ExplainCutsLikeSnprintf) {
  Mask m;
  const std::size_t length = keysieve_candidate_mask_explain(&m.args, nullptr, nullptr, 0);
  std::vector<char> text(length + 1, 'x');
  EXPECT_EQ(keysieve_candidate_mask_explain(&m.args, nullptr, text.data(), text.size()), length);
  EXPECT_EQ(std::strlen(text.data()), length);
  EXPECT_NE(std::string(text.data()).find("cpu.candidate_mask.gaps: chosen\n"), std::string::npos)
      << text.data();
  EXPECT_NE(std::string(text.data()).find("reference.candidate_mask: runs only when asked for by name\n"),
            std::string::npos)
      << text.data();
  char small[6] = "-----";
  EXPECT_EQ(keysieve_candidate_mask_explain(&m.args, nullptr, small, sizeof small), length);
  EXPECT_STREQ(small, std::string(text.data()).substr(0, 5).c_str());
  m.args.block_size = -1;
  EXPECT_EQ(keysieve_candidate_mask_explain(&m.args, nullptr, text.data(), text.size()),
            std::string("candidate_mask: block_size: expected block_size >= 1 (MSK-05), got -1").size());
}

TEST(Abi, TheLibraryListsItself) {
  EXPECT_STREQ(keysieve_version(), version());
  const std::vector<std::string> backends = backend_names();
  ASSERT_EQ(keysieve_backend_count(), backends.size());
  for (std::size_t i = 0; i < backends.size(); ++i) {
    EXPECT_EQ(backends[i], keysieve_backend_name(i));
    const std::vector<std::string> kernels = kernel_names(backends[i].c_str());
    ASSERT_EQ(keysieve_kernel_count(backends[i].c_str()), kernels.size());
    for (std::size_t j = 0; j < kernels.size(); ++j)
      EXPECT_EQ(kernels[j], keysieve_kernel_name(backends[i].c_str(), j));
    EXPECT_EQ(keysieve_kernel_name(backends[i].c_str(), kernels.size()), nullptr);
  }
  EXPECT_EQ(keysieve_backend_name(backends.size()), nullptr);
  EXPECT_EQ(keysieve_kernel_count("abacus"), 0u);
  EXPECT_EQ(keysieve_kernel_count(nullptr), 0u);
}

TEST(Abi, PackedMaskShapes) {
  std::int64_t shape[3];
  keysieve_packed_mask_shape(2, 129, 129, 0, 1, shape);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[1], 256);
  EXPECT_EQ(shape[2], 8);
  for (const std::int64_t multiple : {0, 64, 128})
    for (const std::int64_t queries : {0, 1, 128, 129, 300})
      for (const bool reserve : {false, true}) {
        keysieve_packed_mask_shape(3, queries, 4096, multiple, reserve, shape);
        const PackedMaskShape cpp = packed_mask_shape(3, queries, 4096, {multiple, reserve});
        EXPECT_EQ(shape[1], cpp.rows);
        EXPECT_EQ(shape[2], cpp.words);
      }
}

TEST(Abi, EveryCodeHasItsOwnSentence) {
  std::set<std::string> sentences;
  for (int code = KEYSIEVE_OK; code <= KEYSIEVE_INTERNAL_ERROR; ++code)
    sentences.insert(keysieve_code_sentence(code));
  EXPECT_EQ(sentences.size(), 9u);
  EXPECT_STREQ(keysieve_code_sentence(-5), "an unknown code");
}

TEST(Abi, ForgottenSoftmaxScaleIsRefused) {
  SparseMlaArgs a;
  a.q = Tensor::dense(nullptr, DType::bf16, {3, 4, 576});
  a.cache = Tensor::dense(nullptr, DType::bf16, {2, 16, 576});
  a.indices = Tensor::dense(nullptr, DType::i32, {3, 5});
  a.out = Tensor::dense(nullptr, DType::bf16, {3, 4, 512});
  a.softmax_scale = 0;
  CView view;
  const keysieve_sparse_mla_args args = to_c(a, view);
  keysieve_error error{};
  error.struct_size = sizeof error;
  EXPECT_EQ(keysieve_sparse_mla_supports(&args, nullptr, &error), 0);
  EXPECT_EQ(error.code, KEYSIEVE_INVALID_ARGUMENT) << error.text;
  EXPECT_STREQ(error.argument, "softmax_scale") << error.text;
}

}  // namespace
}  // namespace keysieve::test
