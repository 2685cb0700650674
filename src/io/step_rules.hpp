// step_rules: the sentences of the step file's rules that several parts of the loader quote.
#pragma once

namespace keysieve::io {

inline constexpr const char* kVersionRule = "STP-01 metadata keysieve_step is absent or \"1\"";
inline constexpr const char* kMetadataRule = "STP-02 a metadata value in its range";
inline constexpr const char* kCompleteRule = "STP-05 everything that the stage needs";
inline constexpr const char* kStartsRule = "STP-07 starts that rise from 0 and end inside the data";
inline constexpr const char* kLimitRule = "STP-08 a size below the program's limit";

}  // namespace keysieve::io
