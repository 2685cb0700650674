#!/bin/sh
# check_mutants TESTS LIST [JOBS]: the tests pass as they are, and fail with each fault of LIST ("name
# gtest-filter") on. JOBS faults are tried at a time.
set -u
if [ "$1" = --one ]; then # TESTS NAME FILTER
  # Stop at the first failure: one is enough.
  if KEYSIEVE_MUTANT=$3 "$2" --gtest_filter="$4" --gtest_fail_fast --gtest_brief=1 >/dev/null 2>&1; then
    echo "NOT CAUGHT: $3 by $4"
  else
    echo "caught: $3"
  fi
  exit 0
fi
tests=$1 list=$2 jobs=${3:-1}
faults=$(grep -v -e '^#' -e '^[[:space:]]*$' "$list")
# A filter that matches nothing, or a test that always fails, proves nothing.
broken=$(echo "$faults" | awk '{ print $2 }' | sort -u | while read -r filter; do
  case "$("$tests" --gtest_list_tests --gtest_filter="$filter" 2>&1)" in *"
  "*) ;; *) echo "NO TEST: $filter" ;; esac
done)
unbroken=$(echo "$faults" | awk '{ print $2 }' | sort -u | paste -s -d :)
"$tests" --gtest_filter="$unbroken" --gtest_brief=1 >/dev/null 2>&1 || broken="$broken
FAILS UNBROKEN: $unbroken"
results=$(echo "$faults" | awk '{ print $1, $2 }' | xargs -P "$jobs" -n 2 sh "$0" --one "$tests")
echo "$results" | grep '^NOT CAUGHT'
[ -z "$broken" ] || echo "$broken"
caught=$(echo "$results" | grep -c '^caught')
missed=$(($(echo "$faults" | wc -l) - caught))
echo "mutants: $caught caught, $missed not"
[ "$missed" -eq 0 ] && [ "$caught" -gt 0 ] && [ -z "$broken" ]
