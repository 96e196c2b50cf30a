/* A growing array of bytes; released with free(vec.data). */
#ifndef BT_VEC_H
#define BT_VEC_H

#include <stdlib.h>

#include "wire.h"

typedef struct {
    uint8_t *data;
    size_t size;
    size_t capacity;
} Vec;

/* Makes room for `extra` more bytes; false when there is no memory. */
static inline bool vec_reserve(Vec *vec, size_t extra) {
    if (BT_LIKELY(vec->capacity - vec->size >= extra)) return true;
    if (extra > SIZE_MAX / 4 || vec->size > SIZE_MAX / 4) return false;
    size_t capacity = vec->capacity * 2 > vec->size + extra ? vec->capacity * 2 : vec->size + extra;
    if (capacity < 1024) capacity = 1024;
    uint8_t *data = realloc(vec->data, capacity);
    if (!data) return false;
    vec->data = data;
    vec->capacity = capacity;
    return true;
}

static inline bool vec_push(Vec *vec, const void *bytes, size_t size) {
    if (!vec_reserve(vec, size)) return false;
    if (size) memcpy(vec->data + vec->size, bytes, size);
    vec->size += size;
    return true;
}

static inline bool vec_push_int64(Vec *vec, int64_t value) { return vec_push(vec, &value, 8); }

static inline void vec_free(Vec *vec) {
    free(vec->data);
    vec->data = NULL;
    vec->size = vec->capacity = 0;
}

#endif
