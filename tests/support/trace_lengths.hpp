// trace_lengths: context lengths of 32 consecutive requests of a public chat trace (Mooncake, FAST'25
// release, Apache-2.0: requests 6,000 to 6,031, input plus half of the output tokens). Short and long rows
// side by side, as a serving batch has them; over the whole trace the quantiles 10/50/90/99 % are 1,162,
// 7,092, 27,579 and 85,616.
#pragma once

#include <cstdint>

namespace keysieve::test {

inline constexpr std::int64_t kTraceLengths[] = {
    10800, 4269, 54799, 6905, 50836, 1967,  1026,  1306, 1154, 12747, 1116,  66426, 5794, 16101, 1355,  960,
    11930, 920,  6140,  1446, 20063, 34419, 10250, 968,  6286, 1265,  46292, 2493,  1667, 4085,  20843, 7695};

}  // namespace keysieve::test
