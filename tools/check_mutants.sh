#!/bin/sh
# check_mutants TESTS LIST: the tests pass as they are, and fail with each fault of LIST ("name gtest-filter") on.
set -u
tests=$1 list=$2 caught=0 missed=0
while read -r name filter; do
  case "$name" in ''|'#'*) continue ;; esac
  # Stop at the first failure: one is enough.
  if KEYSIEVE_MUTANT=$name "$tests" --gtest_filter="$filter" --gtest_fail_fast --gtest_brief=1 >/dev/null 2>&1; then
    echo "NOT CAUGHT: $name by $filter"
    missed=$((missed + 1))
  else
    caught=$((caught + 1))
  fi
  # A filter that matches nothing, or a test that always fails, proves nothing.
  out=$("$tests" --gtest_filter="$filter" --gtest_brief=1 2>&1) || { echo "FAILS UNBROKEN: $filter"; missed=$((missed + 1)); }
  case "$out" in *"[  PASSED  ] 0 tests"*) echo "NO TEST: $filter"; missed=$((missed + 1)) ;; esac
done < "$list"
echo "mutants: $caught caught, $missed not"
[ "$missed" -eq 0 ] && [ "$caught" -gt 0 ]
