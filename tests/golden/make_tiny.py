#!/usr/bin/env python3
"""Writes tiny.safetensors: a step small enough to follow by hand, with every answer computed here, in plain Python from
the definitions and from nothing of keysieve. `keysieve check` must agree with all of it.

Two requests of 37 and 60 keys, two draft rows each, 3 index heads, top-k 16 among 5 candidate blocks of 8, 2 attention
heads over latent rows of 576. Values are small integers and halves, so scores are exact; many of them tie.
"""
import math
import pathlib
import random
import struct
import json

LENGTHS, NEXT_N, HEADS, DIM, K, BLOCK, LISTED, MLA_HEADS, LATENT = (37, 60), 2, 3, 128, 16, 8, 5, 2, 576
SCALE = 0.0625
rng = random.Random(7)


def grid(*shape, values):
    if len(shape) == 1:
        return [rng.choice(values) for _ in range(shape[0])]
    return [grid(*shape[1:], values=values) for _ in range(shape[0])]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


rows, keys = len(LENGTHS) * NEXT_N, sum(LENGTHS)
q = grid(rows, HEADS, DIM, values=(-1, 0, 0, 0, 1))
w = grid(rows, HEADS, values=(-0.5, 0.25, 0.5, 1))
k = grid(keys, DIM, values=(-1, 0, 0, 1))
mq = grid(rows, MLA_HEADS, LATENT, values=(-0.5, 0, 0, 0, 0.5))
kv = grid(keys, LATENT, values=(-1, -0.5, 0, 0.5, 1))
first = [0, LENGTHS[0]]

logits, candidates, indices, counts, mask, out, lse = [], [], [], [], [], [], []
for r in range(rows):
    request, draft = divmod(r, NEXT_N)
    visible = LENGTHS[request] - NEXT_N + draft + 1
    base = first[request]
    scores = [sum(w[r][h] * max(0, dot(q[r][h], k[base + c])) for h in range(HEADS)) for c in range(visible)]
    logits.append([scores[c - base] if base <= c < base + visible else 99.0 for c in range(keys)])
    blocks = [rng.randrange(LENGTHS[request] // BLOCK + 2) for _ in range(LISTED - 1)] + [-1]
    rng.shuffle(blocks)
    candidates.append(blocks)
    allowed = [c for c in range(visible) if c // BLOCK in blocks]
    # Greatest first, the smaller column on ties; then in column order.
    best = sorted(sorted(allowed, key=lambda c: (-scores[c], c))[:K])
    counts.append(len(best))
    indices.append(best + [-1] * (K - len(best)))
    mask.append([sum(1 << (c % 32) for c in best if c // 32 == word) for word in range(4)])
    latent, row_lse = [], []
    for h in range(MLA_HEADS):
        s = [SCALE * dot(mq[r][h], kv[base + c]) for c in best]
        top = max(s)
        e = [math.exp(x - top) for x in s]
        total = sum(e)
        row_lse.append(top + math.log(total))
        latent.append([sum(p * kv[base + c][d] for p, c in zip(e, best)) / total for d in range(512)])
    out.append(latent)
    lse.append(row_lse)

padded = [[mask[request * NEXT_N + i] if i < NEXT_N else [0] * 4 for i in range(128)] for request in range(len(LENGTHS))]


def flat(x):
    return [z for y in x for z in flat(y)] if isinstance(x, list) else [x]


def shape(x):
    return [len(x)] + shape(x[0]) if isinstance(x, list) else []


def pack(dtype, values):
    if dtype == "BF16":  # every value here is a bf16: its upper two bytes are all of it
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack("<%d%s" % (len(values), {"F32": "f", "I32": "i", "U32": "I"}[dtype]), *values)


tensors = {
    "index_q": ("BF16", q), "index_w": ("F32", w), "index_k": ("BF16", k), "k_start": ("I32", [0, LENGTHS[0], keys]),
    "lengths": ("I32", list(LENGTHS)), "candidate_blocks": ("I32", candidates), "mla_q": ("BF16", mq), "kv": ("BF16", kv),
    "out_logits": ("F32", logits), "out_indices": ("I32", indices), "out_counts": ("I32", counts),
    "out_mask": ("U32", padded), "out_latent": ("F32", out), "out_lse": ("F32", lse),
}
header = {"__metadata__": {"keysieve_step": "1", "topk": str(K), "next_n": str(NEXT_N), "role": "consumer",
                           "softmax_scale": str(SCALE)}}
data = b""
for name, (dtype, values) in tensors.items():
    raw = pack(dtype, flat(values))
    header[name] = {"dtype": dtype, "shape": shape(values), "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 64)
target = pathlib.Path(__file__).with_name("tiny.safetensors")
target.write_bytes(struct.pack("<Q", len(text)) + text + data)
print(target, target.stat().st_size, "bytes")
