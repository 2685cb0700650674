/* keysieve.h as C11, strictly: a call with designated initialisers and nothing of C++. */
#include <keysieve/keysieve.h>
#include <math.h>
#include <string.h>

/* Returns 0, or the number of the step that went wrong. */
int c11_candidate_mask(void) {
  float scores[2 * 6];
  int32_t ends[2] = {6, 3}, blocks[2] = {1, 0};
  int64_t matrix[2] = {2, 6}, vector[1] = {2}, list[2] = {2, 1};
  DLTensor scores_tensor = {scores, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, matrix, NULL, 0};
  DLTensor ends_tensor = {ends, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, vector, NULL, 0};
  DLTensor blocks_tensor = {blocks, {kDLCPU, 0}, 2, {kDLInt, 32, 1}, list, NULL, 0};
  keysieve_bounds bounds = {.struct_size = sizeof bounds, .end = &ends_tensor};
  keysieve_candidate_mask_args args = {.struct_size = sizeof args,
                                       .scores = &scores_tensor,
                                       .bounds = &bounds,
                                       .candidates = &blocks_tensor,
                                       .block_size = 2};
  keysieve_error error = {.struct_size = sizeof error};
  _Alignas(64) unsigned char workspace[1024];
  size_t bytes = 0;
  for (int i = 0; i < 12; ++i) scores[i] = (float)i;
  if (keysieve_candidate_mask_workspace_bytes(&args, NULL, &bytes, &error) != KEYSIEVE_OK) return 1;
  if (bytes > sizeof workspace) return 2;
  if (keysieve_candidate_mask(&args, NULL, workspace, sizeof workspace, &error) != KEYSIEVE_OK) return 3;
  /* Row 0 keeps columns 2 and 3; row 1 owns three columns and keeps 0 and 1. */
  const float want[12] = {-INFINITY, -INFINITY, 2, 3, -INFINITY, -INFINITY, 6, 7, -INFINITY, 9, 10, 11};
  if (memcmp(scores, want, sizeof want) != 0) return 4;
  if (error.code != KEYSIEVE_OK || error.text[0] != 0) return 5;
  return 0;
}
