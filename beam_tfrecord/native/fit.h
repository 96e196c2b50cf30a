/* Whether records surely are what a schema says. */
#ifndef BT_FIT_H
#define BT_FIT_H

#include "wire.h"

/* What a schema says of one feature. */
typedef struct {
    Span name;
    int kind;
    bool required;
    bool is_text;         /* values of bytes are UTF-8 */
    int64_t min_values;   /* if the feature is there */
    int64_t max_values;
    int64_t low;          /* of integers */
    int64_t high;
    int64_t value_bytes;  /* of each value of bytes; -1 is any */
} FitRule;

/* Records from the first on that are canonical Examples of no other features than those of the
 * rules, which are in order of their names. The one after them may fit all the same: it has to be
 * looked at by other means. */
int64_t bt_fitting_records(const uint8_t *data, size_t bytes, const int64_t *starts,
                           int64_t records, const FitRule *rules, int64_t rule_count);

#endif
