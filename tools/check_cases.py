#!/usr/bin/env python3
"""Every case of tests/cases.txt that is not marked `later` has a test whose name holds its id."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
tests = "\n".join(p.read_text(encoding="utf-8") for p in (root / "tests").rglob("*_test.c*"))
replayed = set(re.findall(r"\bTEST(?:_[FP])?\(\s*\w+\s*,\s*(\w+)", tests))
ids = {case for name in replayed for case in re.findall(r"H\d\d", name)}
missing = later = 0
for line in (root / "tests/cases.txt").read_text(encoding="utf-8").splitlines():
    if not line or line.startswith("#"):
        continue
    case, stage = line.split()[:2]
    if stage == "later":
        later += 1
    elif case not in ids:
        print(f"no test is named after {line}")
        missing += 1
print(f"cases: {len(ids)} replayed, {later} of later stages, {missing} missing")
sys.exit(1 if missing else 0)
