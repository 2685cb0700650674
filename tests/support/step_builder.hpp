// step_builder: small step files for tests. Owns its arrays; write() puts them into a file.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "support/tensor_box.hpp"

namespace keysieve::test {

class StepBuilder {
 public:
  std::map<std::string, std::string> metadata;
  struct Array {
    io::FileDType dtype;
    std::vector<std::int64_t> shape;
    std::vector<unsigned char> bytes;
  };
  std::map<std::string, Array> arrays;

  template <class T>
  void add(const std::string& name, io::FileDType dtype, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
    Array array{dtype, std::move(shape), std::vector<unsigned char>(values.size() * sizeof(T))};
    if (!values.empty()) std::memcpy(array.bytes.data(), values.data(), array.bytes.size());
    arrays[name] = std::move(array);
  }
  void ints(const std::string& name, std::vector<std::int64_t> shape,
            const std::vector<std::int32_t>& values) {
    add(name, io::FileDType::i32, std::move(shape), values);
  }
  // Normal values; bf16.
  void random(const std::string& name, std::vector<std::int64_t> shape) {
    std::vector<std::uint16_t> values(count(shape));
    for (std::uint16_t& value : values) value = to_bf16(normal_(engine_));
    add(name, io::FileDType::bf16, std::move(shape), values);
  }
  void random_f32(const std::string& name, std::vector<std::int64_t> shape) {
    std::vector<float> values(count(shape));
    for (float& value : values) value = normal_(engine_);
    add(name, io::FileDType::f32, std::move(shape), values);
  }
  template <class T>
  T* data(const std::string& name) {
    return reinterpret_cast<T*>(arrays.at(name).bytes.data());
  }

  [[nodiscard]] Status write(const std::string& path) const {
    io::SafetensorsWriter writer;
    for (const auto& [key, value] : metadata) writer.set_metadata(key, value);
    for (const auto& [name, a] : arrays) writer.add(name, a.dtype, a.shape, a.bytes.data());
    return writer.write(path);
  }

  // One request of `keys` keys and `rows` prefill rows at its end: every stage, with latent rows of all keys.
  static StepBuilder prefill(std::int64_t rows, std::int64_t keys, std::int64_t topk,
                             std::int64_t heads = 4) {
    StepBuilder b;
    b.metadata = {{"keysieve_step", "1"}, {"topk", std::to_string(topk)}, {"softmax_scale", "0.0722"}};
    b.random("index_q", {rows, 4, 128});
    b.random_f32("index_w", {rows, 4});
    b.random("index_k", {keys, 128});
    std::vector<std::int32_t> positions(static_cast<std::size_t>(rows));
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(keys - rows));
    b.ints("query_pos", {rows}, positions);
    b.random("mla_q", {rows, heads, 576});
    b.random("kv", {keys, 576});
    return b;
  }

  // Paged decode: `requests` of `next_n` draft rows, keys and latent rows in pages of 16 that lie scattered.
  static StepBuilder decode(const std::vector<std::int32_t>& lengths, std::int64_t next_n,
                            std::int64_t topk) {
    const auto requests = static_cast<std::int64_t>(lengths.size());
    StepBuilder b;
    b.metadata = {{"keysieve_step", "1"},
                  {"topk", std::to_string(topk)},
                  {"softmax_scale", "0.0722"},
                  {"next_n", std::to_string(next_n)}};
    std::int64_t columns = 1;
    for (const std::int32_t length : lengths) columns = std::max<std::int64_t>(columns, (length + 15) / 16);
    std::vector<std::int32_t> table(static_cast<std::size_t>(requests * columns));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), b.engine_);
    b.random("index_q", {requests, next_n, 4, 128});
    b.random_f32("index_w", {requests, next_n, 4});
    b.random("index_cache", {requests * columns, 16, 128});
    b.ints("page_table", {requests, columns}, table);
    b.ints("lengths", {requests}, lengths);
    b.random("mla_q", {requests, next_n, 4, 576});
    b.random("kv_cache", {requests * columns, 16, 576});
    return b;
  }

 private:
  static std::size_t count(const std::vector<std::int64_t>& shape) {
    return static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
  }
  std::mt19937 engine_{11};
  std::normal_distribution<float> normal_;
};

}  // namespace keysieve::test
