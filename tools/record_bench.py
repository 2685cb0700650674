#!/usr/bin/env python3
"""record_bench [--without-avx512] OPERATION[=NAME]...: runs each one's benchmarks, writes bench/results/cpu/NAME.json.

The file names the commit that was built, the processor and the instruction set, not the machine. thread_scaling needs
both cores to itself for a moment, so it is run several times over, in random order."""
import json
import os
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
arguments = sys.argv[1:]
if arguments[:1] == ["--without-avx512"]:
    os.environ["KEYSIEVE_BENCH_WITHOUT_AVX512"] = "1"
    arguments.pop(0)
for argument in arguments or sys.exit(__doc__):
    operation, _, name = argument.partition("=")
    output = root / "bench/results/cpu" / f"{name or operation}.json"
    repeats = ["--benchmark_repetitions=8", "--benchmark_enable_random_interleaving=true"] if operation == "thread_scaling" else []
    subprocess.run([root / "build/bench/keysieve_bench", f"--benchmark_filter=^(naive/)?{operation}/",
                    f"--benchmark_out={output}", "--benchmark_out_format=json", *repeats], check=True)
    recorded = json.loads(output.read_text(encoding="utf-8"))
    if recorded["context"]["commit"].endswith("-dirty"):
        print(f"{operation}: commit first: these are the figures of no commit")
    for private in ("host_name", "executable"):
        recorded["context"].pop(private, None)
    recorded["benchmarks"] = [b for b in recorded["benchmarks"] if b["run_type"] == "iteration"]
    output.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
