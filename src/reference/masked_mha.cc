// masked_mha, as defined: for every token, find its request, list the keys that it keeps, attend to them.
#include "keysieve/masked_mha.hpp"

#include <algorithm>

#include "reference/attention.hpp"
#include "registry/kernel.hpp"

namespace keysieve::reference {
namespace {

struct Request {
  std::int64_t id = -1;  // -1: nobody's token
  std::int64_t first_query = 0, queries = 0, first_key = 0, keys = 0;
};

// MHA-22: starts are data; what lies outside or runs backwards is clamped, and an earlier request owns first.
Request request_of(const MaskedMhaArgs& a, std::int64_t token) {
  const std::int64_t tokens = a.q.shape[0], keys = a.k.shape[0];
  std::int64_t owned = 0;
  for (std::int64_t b = 0; b + 1 < a.q_start.shape[0]; ++b) {
    const std::int64_t begin = std::clamp<std::int64_t>(integer_at(a.q_start, b), owned, tokens);
    const std::int64_t end = std::clamp<std::int64_t>(integer_at(a.q_start, b + 1), begin, tokens);
    owned = end;
    if (token < begin || token >= end) continue;
    const std::int64_t first_key = std::clamp<std::int64_t>(integer_at(a.k_start, b), 0, keys);
    const std::int64_t last_key = std::clamp<std::int64_t>(integer_at(a.k_start, b + 1), first_key, keys);
    return {b, begin, end - begin, first_key, last_key - first_key};
  }
  return {};
}

using Wide = __int128;  // offsets are data too: no sum of them may overflow

Wide given_or(const Tensor& t, std::int64_t request, Wide otherwise) {
  return t.given() ? Wide{integer_at(t, request)} : otherwise;
}

bool keeps(const MaskedMhaArgs& a, const Request& r, std::int64_t query, std::int64_t key) {
  const Wide q_offset = given_or(a.q_offset, r.id, 0), key_offset = given_or(a.key_offset, r.id, 0);
  const Wide row = q_offset + query, bit = key_offset + key;
  if (a.causal && bit > row + given_or(a.k_total, r.id, key_offset + r.keys) -
                            given_or(a.q_total, r.id, q_offset + r.queries))
    return false;
  if (!a.mask.given()) return true;
  if (row < 0 || row >= a.mask.shape[1] || bit < 0 || bit >= 32 * Wide{a.mask.shape[2]}) return false;
  const std::int64_t owner = a.mask.shape[0] == 1 ? 0 : r.id;
  const auto word =
      at<std::uint32_t>(a.mask, owner, static_cast<std::int64_t>(row), static_cast<std::int64_t>(bit / 32));
  return ((word >> static_cast<int>(bit % 32)) & 1) != 0;
}

Status run(const MaskedMhaArgs& a, const Launch&) {
  const std::int64_t heads = a.q.shape[1], dqk = a.q.shape[2], columns = a.v.shape[2];
  for (std::int64_t token = 0; token < a.q.shape[0]; ++token) {
    const Request request = request_of(a, token);
    std::vector<std::int64_t> kept;
    for (std::int64_t key = 0; key < request.keys; ++key)
      if (keeps(a, request, token - request.first_query, key)) kept.push_back(request.first_key + key);
    for (std::int64_t head = 0; head < heads; ++head) {
      std::vector<double> score(kept.size(), 0.0);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        for (std::int64_t d = 0; d < dqk; ++d)
          score[i] += double{real_at(a.q, token, head, d)} * double{real_at(a.k, kept[i], head, d)};
        score[i] *= double{a.softmax_scale};
      }
      const Attended attended = attend(score, columns, [&](std::size_t i, std::int64_t c) {
        return double{real_at(a.v, kept[i], head, c)};
      });
      const double sink = a.sink.given() ? double{at<float>(a.sink, head)} : kNoKeys;
      const bool empty = attended.lse == kNoKeys;
      for (std::int64_t c = 0; c < columns; ++c) {
        const double mean = attended.mean[static_cast<std::size_t>(c)];
        set_real(a.out, static_cast<float>(empty ? 0.0 : mean * sink_share(attended.lse, sink)), token, head,
                 c);
      }
      if (a.lse.given()) at<float>(a.lse, token, head) = written_lse(attended.lse, a.lse_form, sink);
    }
  }
  return {};
}

}  // namespace

extern const Kernel<MaskedMhaArgs> kMaskedMhaKernels[] = {
    {"reference.masked_mha", [](const MaskedMhaArgs&) -> const char* { return nullptr; },
     [](const MaskedMhaArgs&, std::int32_t) -> std::size_t { return 0; }, run}};

}  // namespace keysieve::reference
