#!/usr/bin/env python3
"""record_bench OPERATION...: runs each one's benchmarks and writes bench/results/cpu/OPERATION.json.

The file names the commit that was built and the processor, not the machine."""
import json
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
for operation in sys.argv[1:] or sys.exit(__doc__):
    output = root / "bench/results/cpu" / f"{operation}.json"
    subprocess.run([root / "build/bench/keysieve_bench", f"--benchmark_filter=^(naive/)?{operation}/",
                    f"--benchmark_out={output}", "--benchmark_out_format=json"], check=True)
    recorded = json.loads(output.read_text(encoding="utf-8"))
    if recorded["context"]["commit"].endswith("-dirty"):
        print(f"{operation}: commit first: these are the figures of no commit")
    for private in ("host_name", "executable"):
        recorded["context"].pop(private, None)
    output.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
