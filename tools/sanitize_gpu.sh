#!/bin/sh
# sanitize_gpu TESTS [FILTER] [FOLDER]: runs gpu_tests under each tool of compute-sanitizer, side by side, and leaves
# their reports in FOLDER. Fails if one of them finds something, or if tests fail. Left out are the tests of the
# largest shapes, which a checker slows down a hundredfold, and for racecheck, the slowest, those of many shapes.
set -u
tests=$1
filter=${2:-CandidateMask.*:CandidateBlocks.*:PackedMask.*:PackedMaskDevice.Rows*:MaskIndices*:Translate.*:Topk.*EverySpace:TopkCases.H24*:TopkCases.H32*:TopkCandidates.Few*:TopkPlan.AMisleading*:Streams.*-*Wide*:*Learned*:*SeedMatrix*:*AddressesPass*:*Batch*:*Cost*}
races=${2:-CandidateMask.*Lengths:CandidateMask.Nothing*:CandidateBlocks.*Lengths:CandidateBlocks.Nan*:CandidateBlocks.Order*:CandidateBlocks.Minus*:PackedMask.AScore*:PackedMask.TheLast*:PackedMask.Summary*:PackedMask.*ManyTiles:SelectionReplay.PackedMask:Topk.*EverySpace:TopkCases.H24*:TopkCases.H32*:TopkCandidates.Few*:TopkPlan.AMisleading*:MaskIndices*:TranslateCases.*:Streams.CandidateMask}
folder=${3:-sanitized}
sanitizer=$(command -v compute-sanitizer) || sanitizer=/usr/local/cuda/bin/compute-sanitizer
[ -x "$sanitizer" ] || { echo "sanitize_gpu: compute-sanitizer is not installed"; exit 77; }
mkdir -p "$folder"
# Memory of its own for each call: memcheck sees every step past it, and initcheck what nobody wrote.
export KEYSIEVE_FRESH_MEMORY=1
for tool in memcheck racecheck initcheck synccheck; do
  (
    [ "$tool" = racecheck ] && filter=$races
    "$sanitizer" --tool "$tool" --error-exitcode 1 --print-limit 20 "$tests" --gtest_filter="$filter" --gtest_brief=1 \
      >"$folder/$tool.txt" 2>&1
    echo $? >"$folder/$tool.status"
  ) &
done
wait
failed=0
for tool in memcheck racecheck initcheck synccheck; do
  status=$(cat "$folder/$tool.status")
  echo "$tool: exit $status, $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$folder/$tool.txt" | tail -1), $(grep -E 'PASSED|FAILED  \]' "$folder/$tool.txt" | tail -1)"
  [ "$status" -eq 0 ] || failed=1
done
exit $failed
