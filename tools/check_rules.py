#!/usr/bin/env python3
"""Every rule id stands in code, in docs/contracts and in a test; none stands only in some of them."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
RULE = re.compile(r"\b[A-Z]{3}-\d{2}\b")


def ids(folder, suffixes):
    found = set()
    for path in (root / folder).rglob("*"):
        if path.suffix in suffixes:
            found |= set(RULE.findall(path.read_text(encoding="utf-8")))
    return found


code = ids("src", {".hpp", ".cc", ".cu"}) | ids("cli", {".hpp", ".cc"})
docs = ids("docs/contracts", {".md"})
tests = ids("tests", {".cc", ".c", ".py"})
bad = 0
for rule in sorted(code | docs | tests):
    missing = [name for name, having in (("src", code), ("docs/contracts", docs), ("tests", tests)) if rule not in having]
    if missing:
        print(f"{rule}: missing in {', '.join(missing)}")
        bad += 1
print(f"rules: {len(code | docs | tests)} ids, {bad} incomplete")
sys.exit(1 if bad else 0)
