// mla_keys: walks the cache rows that one query row of sparse_mla attends to, in list order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "contract/mutant.hpp"
#include "cpu/row_range.hpp"
#include "keysieve/sparse_mla.hpp"

namespace keysieve::cpu {

class MlaKeys {
 public:
  MlaKeys(const SparseMlaArgs& a, std::int64_t row) {
    pool_[0] = Pool(a.cache, a.indices, a.lengths, row);
    if (a.extra_indices.given() && !mutant("sparse_mla.no_extra"))
      pool_[1] = Pool(a.extra_cache, a.extra_indices, a.extra_lengths, row);
  }

  // The next keys, at most `room`; fewer only at the end of the list.
  std::size_t next(const std::uint16_t** key, std::size_t room) {
    std::size_t found = pool_[0].next(key, room);
    if (found < room) found += pool_[1].next(key + found, room - found);
    return found;
  }

 private:
  struct Pool {
    const Tensor* indices = nullptr;
    const std::uint16_t* cache = nullptr;
    std::int64_t row_offset = 0, page_tokens = 1, page_stride = 0, token_stride = 0, slots = 0;
    std::int64_t at = 0, count = 0;

    Pool() = default;
    Pool(const Tensor& c, const Tensor& i, const Tensor& lengths, std::int64_t row)
        : indices(&i),
          cache(static_cast<const std::uint16_t*>(c.data)),
          row_offset(row * i.stride[0]),
          page_tokens(c.shape[1]),
          page_stride(mutant("sparse_mla.page_stride") ? c.shape[1] * c.stride[1] : c.stride[0]),
          token_stride(c.stride[1]),
          slots(c.shape[0] * c.shape[1]),
          count(i.shape[1]) {
      // MLA-20.
      if (lengths.given() && !mutant("sparse_mla.length")) count = std::min(count, load_int(lengths, row));
    }

    template <class T>
    std::size_t next_of(const std::uint16_t** key, std::size_t room) {
      const T* list = static_cast<const T*>(indices->data) + row_offset;
      std::size_t found = 0;
      for (; at < count && found < room; ++at) {
        std::int64_t slot = list[at * indices->stride[1]];
        if (mutant("sparse_mla.bad_slot") && slots > 0) slot = std::clamp<std::int64_t>(slot, 0, slots - 1);
        // MLA-19: as unsigned, negative slots are too large as well.
        if (static_cast<std::uint64_t>(slot) >= static_cast<std::uint64_t>(slots)) continue;
        key[found++] = cache + slot / page_tokens * page_stride + slot % page_tokens * token_stride;
      }
      return found;
    }

    std::size_t next(const std::uint16_t** key, std::size_t room) {
      if (at >= count) return 0;
      return indices->dtype == DType::i64 ? next_of<std::int64_t>(key, room)
                                          : next_of<std::int32_t>(key, room);
    }
  };

  Pool pool_[2];
};

}  // namespace keysieve::cpu
