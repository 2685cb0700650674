// families: the kinds of scores that selection must get right, one generator for tests and benches.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace keysieve::test {

enum class Family {
  random,
  relu_like,
  learned_like,
  ties,
  all_equal,
  signed_zeros,
  nan,
  infinities,
  subnormal,
  crowded,
  ascending
};

inline const std::vector<Family>& all_families() {
  static const std::vector<Family> families = {Family::random,  Family::relu_like,  Family::learned_like,
                                               Family::ties,    Family::all_equal,  Family::signed_zeros,
                                               Family::nan,     Family::infinities, Family::subnormal,
                                               Family::crowded, Family::ascending};
  return families;
}

inline std::string family_name(Family family) {
  switch (family) {
    case Family::random:
      return "random";
    case Family::relu_like:
      return "relu_like";
    case Family::learned_like:
      return "learned_like";
    case Family::ties:
      return "ties";
    case Family::all_equal:
      return "all_equal";
    case Family::signed_zeros:
      return "signed_zeros";
    case Family::nan:
      return "nan";
    case Family::infinities:
      return "infinities";
    case Family::subnormal:
      return "subnormal";
    case Family::crowded:
      return "crowded";
    case Family::ascending:
      return "ascending";
  }
  return "";
}

// `count` scores; the same seed gives the same scores.
inline std::vector<float> make_scores(Family family, std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto pick = [&](std::uint64_t n) { return random() % n; };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> scores(static_cast<std::size_t>(count));
  std::int64_t i = 0;
  for (float& s : scores) {
    switch (family) {
      case Family::random:
        s = normal(random);
        break;
      case Family::relu_like:
        s = std::max(0.f, normal(random)) * 3.f;
        break;
      // Mostly negative with a short positive tail, as learned indexers give.
      case Family::learned_like:
        s = 4.f - 12.f * std::abs(normal(random)) + 2.f * normal(random);
        break;
      case Family::ties:
        s = static_cast<float>(pick(7)) - 3.f;
        break;
      case Family::all_equal:
        s = 1.25f;
        break;
      case Family::signed_zeros:
        s = pick(5) == 0 ? -1e-45f : (pick(2) == 0 ? 0.f : -0.f);
        break;
      case Family::nan:
        s = pick(9) == 0
                ? std::bit_cast<float>(static_cast<std::uint32_t>(pick(2) == 0 ? 0x7fc00001u : 0xff800001u))
                : normal(random);
        break;
      case Family::infinities:
        s = pick(4) == 0 ? kInfinity : (pick(3) == 0 ? -kInfinity : normal(random));
        break;
      case Family::subnormal:
        s = std::bit_cast<float>(static_cast<std::uint32_t>(pick(4096) | (pick(2) << 31)));
        break;
      // Everything shares its upper 22 bits.
      case Family::crowded:
        s = std::bit_cast<float>(0x3f900000u | static_cast<std::uint32_t>(pick(1024)));
        break;
      case Family::ascending:
        s = static_cast<float>(i) * 0.25f - 100.f;
        break;
    }
    ++i;
  }
  return scores;
}

}  // namespace keysieve::test
