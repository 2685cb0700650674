#!/usr/bin/env python3
"""Cuts the two samples of samples/ out of full step files.

    tools/make_samples.py FOLDER_OF_STEP_FILES samples

Needs nothing but Python. The cuts are exact: tensors keep their bits, and every expected value that a cut changes is
computed here anew, in float64. The text that the steps came from is left out.
"""
import array
import json
import math
import operator
import os
import struct
import sys

CODES = {"F64": "d", "F32": "f", "I32": "i", "BF16": "H"}


class Tensor:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), bytes(data)
        assert len(self.data) == math.prod(self.shape) * struct.calcsize(CODES[dtype]), (dtype, shape, len(data))

    def numbers(self):
        values = array.array(CODES[self.dtype], self.data)
        if self.dtype != "BF16":
            return values
        wide = bytearray(2 * len(self.data))  # bf16 is the upper half of an f32
        wide[2::4], wide[3::4] = self.data[0::2], self.data[1::2]
        return array.array("f", bytes(wide))

    def rows(self, first, last, shape=None):
        size = len(self.data) // self.shape[0]
        return Tensor(self.dtype, shape or [last - first] + self.shape[1:], self.data[first * size:last * size])


def tensor(dtype, shape, values):
    return Tensor(dtype, shape, array.array(CODES[dtype], values).tobytes())


def read(path):
    with open(path, "rb") as file:
        (header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_bytes))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] in CODES:
            tensors[name] = Tensor(entry["dtype"], entry["shape"], data[begin:end])
    return tensors, metadata


def write(path, tensors, metadata):
    """Larger elements first and a header of a multiple of 64 bytes, so every array is aligned."""
    order = sorted(tensors, key=lambda name: (-struct.calcsize(CODES[tensors[name].dtype]), name))
    header, offset = {"__metadata__": metadata}, 0
    for name in order:
        end = offset + len(tensors[name].data)
        header[name] = {"dtype": tensors[name].dtype, "shape": tensors[name].shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(tensors[name].data)
    print(f"{path}: {8 + len(text) + offset:,} bytes")


def speculative(folder, out, requests=(0, 3)):
    """Two requests of a speculative step, two draft rows each: one that is shorter than its candidate blocks reach and
    one that is longer. Requests do not see each other, so nothing that was expected of them changes."""
    t, metadata = read(os.path.join(folder, "spec_next2.safetensors"))

    def joined(name, parts):
        pieces = [t[name].rows(first, last) for first, last in parts]
        return Tensor(t[name].dtype, [sum(p.shape[0] for p in pieces)] + t[name].shape[1:],
                      b"".join(p.data for p in pieces))

    def spans(name):
        starts = t[name].numbers()
        parts = [(starts[r], starts[r + 1]) for r in requests]
        new = [0]
        for first, last in parts:
            new.append(new[-1] + last - first)
        return parts, tensor("I32", [len(new)], new)

    keys, k_start = spans("k_start")
    latent, kv_start = spans("layer3.kv_start")
    kept = {
        "k_start": k_start, "layer3.kv_start": kv_start,
        "layer3.index_k": joined("layer3.index_k", keys),
        "layer3.kv": joined("layer3.kv", latent), "layer3.kv_pos": joined("layer3.kv_pos", latent),
        "layer3.expected_scores": joined("layer3.expected_scores", [(2 * first, 2 * last) for first, last in keys]),
    }
    for name in ("context_len", "query_pos", "candidate_blocks", "layer3.index_q", "layer3.index_w", "layer3.mla_q",
                 "layer3.expected_topk", "layer3.expected_out", "layer3.expected_lse"):
        kept[name] = joined(name, [(r, r + 1) for r in requests])
    kept_metadata = {key: metadata[key] for key in ("topk", "candidate_block", "softmax_scale", "next_n")}
    kept_metadata.update(keysieve_step="1", role="consumer", note="two requests of a speculative step with two draft rows each")
    write(os.path.join(out, "speculative.safetensors"), kept, kept_metadata)


def dot(a, b):
    return sum(map(operator.mul, a, b))


def prefill(folder, out, first_row=8, keys=2496, checked=(0, 1, 15, 31)):
    """The last `keys` positions before the end of a prefill chunk, as a request of their own, with the latent rows of
    all of them. Positions count from the first kept key; candidate blocks before it are gone."""
    t, metadata = read(os.path.join(folder, "prefill40_ctx8192_full.safetensors"))
    positions = t["query_pos"].numbers()[first_row:]
    rows, end, block = len(positions), positions[-1] + 1, int(metadata["candidate_block"])
    start, topk, scale = end - keys, int(metadata["topk"]), float(metadata["softmax_scale"])
    assert start % block == 0
    index_q = t["layer3.index_q"].rows(first_row, first_row + rows)
    index_w = t["layer3.index_w"].rows(first_row, first_row + rows)
    index_k = t["layer3.index_k"].rows(start, end)
    mla_q = t["layer3.mla_q"].rows(first_row, first_row + rows)
    kv = t["layer3.kv"].rows(start, end)
    columns = t["candidate_blocks"].shape[1]
    old = t["candidate_blocks"].numbers()[first_row * columns:]
    blocks = []
    for r in range(rows):
        row = [b - start // block for b in old[r * columns:(r + 1) * columns] if b >= start // block]
        blocks += row + [-1] * (columns - len(row))

    heads, dim = index_q.shape[1:]
    q, w, k = index_q.numbers().tolist(), index_w.numbers().tolist(), index_k.numbers().tolist()
    key_rows = [k[c * dim:(c + 1) * dim] for c in range(keys)]
    scores, selected, gaps = [], [], []
    for r in range(rows):
        visible = positions[r] - start + 1
        queries = [q[(r * heads + h) * dim:(r * heads + h + 1) * dim] for h in range(heads)]
        weights = w[r * heads:(r + 1) * heads]
        row = [sum(wh * max(0.0, dot(qh, key)) for wh, qh in zip(weights, queries)) for key in key_rows]
        listed = set(blocks[r * columns:(r + 1) * columns])
        ranked = sorted((c for c in range(visible) if c // block in listed), key=lambda c: (-row[c], c))
        selected.append(ranked[:topk])
        gaps.append(row[ranked[topk - 1]] - row[ranked[topk]] if len(ranked) > topk else math.inf)
        if r in checked:
            scores += row

    attention_heads, latent = mla_q.shape[1:]
    mq, values = mla_q.numbers().tolist(), kv.numbers().tolist()
    expected_out, expected_lse = [], []
    for r in checked:
        latent_rows = [values[c * latent:(c + 1) * latent] for c in selected[r]]
        for h in range(attention_heads):
            query = mq[(r * attention_heads + h) * latent:(r * attention_heads + h + 1) * latent]
            logits = [scale * dot(query, row) for row in latent_rows]
            most = max(logits)
            weights = [math.exp(x - most) for x in logits]
            total = math.fsum(weights)
            expected_lse.append(most + math.log(total))
            expected_out += [x / total for x in map(lambda *column: dot(weights, column), *(row[:512] for row in latent_rows))]

    tensors = {
        "query_pos": tensor("I32", [rows], [p - start for p in positions]),
        "candidate_blocks": tensor("I32", [rows, columns], blocks),
        "checked_rows": tensor("I32", [len(checked)], checked),
        "layer3.index_q": index_q, "layer3.index_w": index_w, "layer3.index_k": index_k,
        "layer3.mla_q": mla_q, "layer3.kv": kv,
        "layer3.expected_scores": tensor("F64", [len(checked), keys], scores),
        "layer3.expected_topk": tensor("I32", [rows, topk],
                                       [c for row in selected for c in row + [-1] * (topk - len(row))]),
        "layer3.expected_topk_gap": tensor("F64", [rows], gaps),
        "layer3.expected_out": tensor("F64", [len(checked), attention_heads, 512], expected_out),
        "layer3.expected_lse": tensor("F64", [len(checked), attention_heads], expected_lse),
    }
    write(os.path.join(out, "prefill.safetensors"), tensors,
          {"keysieve_step": "1", "topk": str(topk), "candidate_block": str(block), "role": "consumer",
           "softmax_scale": metadata["softmax_scale"],
           "note": f"the last {keys} positions of a prefill chunk, as a request of their own"})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    os.makedirs(sys.argv[2], exist_ok=True)
    speculative(sys.argv[1], sys.argv[2])
    prefill(sys.argv[1], sys.argv[2])
