#include "csv_values.h"

BT_INLINE bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }
BT_INLINE bool is_blank(uint8_t byte) { return byte == ' ' || byte == '\t'; }

int csv_find_word(const CsvWords *words, const uint8_t *at, size_t bytes) {
    if (!bytes || bytes > words->longest || !(words->first[*at >> 6] >> (*at & 63) & 1)) return -1;
    uint32_t start = 0;
    for (uint32_t i = 0; i < words->count; start = words->ends[i++])
        if (words->ends[i] - start == bytes && !memcmp(words->text + start, at, bytes))
            return (int)i;
    return -1;
}

bool csv_is_word(const CsvWords *words, const uint8_t *at, size_t bytes) {
    return csv_find_word(words, at, bytes) >= 0;
}

bool csv_trim(const uint8_t **at, size_t *bytes) {
    const uint8_t *from = *at, *to = from + *bytes;
    while (from < to && is_blank(*from)) from++;
    while (from < to && is_blank(to[-1])) to--;
    bool trimmed = (size_t)(to - from) != *bytes;
    *at = from;
    *bytes = (size_t)(to - from);
    return trimmed;
}

int csv_parse_int(const uint8_t *at, size_t bytes, bool *negative, uint64_t *magnitude) {
    const uint8_t *end = at + bytes;
    *negative = bytes && *at == '-';
    at += *negative;
    if (at == end) return CSV_BAD;
    uint64_t value = 0;
    /* 19 digits always fit; only what is longer needs care. */
    const uint8_t *safe = end - at > 19 ? at + 19 : end;
    for (; at < safe; at++) {
        if (!is_digit(*at)) return CSV_BAD;
        value = value * 10 + (*at - '0');
    }
    for (; at < end; at++) {
        if (!is_digit(*at) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return CSV_BAD;
    }
    *magnitude = value;
    return CSV_GOOD;
}

int csv_parse_bool(const uint8_t *at, size_t bytes, bool *value) {
    if (bytes == 1 && (*at == '0' || *at == '1')) {
        *value = *at == '1';
        return CSV_GOOD;
    }
    uint8_t word[5];
    if (bytes != 4 && bytes != 5) return CSV_BAD;
    for (size_t i = 0; i < bytes; i++) word[i] = at[i] | 0x20;
    *value = bytes == 4;
    return memcmp(word, *value ? "true" : "false", bytes) ? CSV_BAD : CSV_GOOD;
}

/* The number of `count` digits, or -1. */
BT_INLINE int digits(const uint8_t *at, int count) {
    int value = 0;
    for (int i = 0; i < count; i++) {
        if (!is_digit(at[i])) return -1;
        value = value * 10 + (at[i] - '0');
    }
    return value;
}

/* Days since 1970-01-01 of a date in the proleptic Gregorian calendar, counted in years that
 * begin in March and eras of 400 years. */
static int64_t days_since_epoch(int year, int month, int day) {
    year -= month <= 2;
    int era = year / 400, of_era = year % 400;
    int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (int64_t)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static bool parse_date(const uint8_t *at, int64_t *days) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year = digits(at, 4), month = digits(at + 5, 2), day = digits(at + 8, 2);
    if (year < 1 || month < 1 || month > 12 || day < 1 || at[4] != '-' || at[7] != '-')
        return false;
    bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > lengths[month - 1] + (month == 2 && leap)) return false;
    *days = days_since_epoch(year, month, day);
    return true;
}

static bool parse_zone(const uint8_t *at, size_t bytes, int *seconds) {
    *seconds = 0;
    if (bytes == 1) return *at == 'Z';
    if (bytes < 3 || bytes == 4 || bytes > 6 || (*at != '+' && *at != '-')) return false;
    int hours = digits(at + 1, 2), minutes = 0;
    if (bytes == 5) minutes = digits(at + 3, 2);
    if (bytes == 6) minutes = at[3] == ':' ? digits(at + 4, 2) : -1;
    if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return false;
    *seconds = (hours * 60 + minutes) * (*at == '-' ? -60 : 60);
    return true;
}

int csv_parse_time(const uint8_t *at, size_t bytes, CsvTime *value) {
    const uint8_t *end = at + bytes;
    int64_t days;
    *value = (CsvTime){0};
    if (bytes < 10 || !parse_date(at, &days)) return CSV_BAD;
    value->seconds = days * 86400;
    value->dated = bytes == 10;
    if (value->dated) return CSV_GOOD;
    if (bytes < 16 || (at[10] != 'T' && at[10] != ' ') || at[13] != ':') return CSV_BAD;
    int hour = digits(at + 11, 2), minute = digits(at + 14, 2), second = 0;
    at += 16;
    if (end - at >= 3 && *at == ':') {
        second = digits(at + 1, 2);
        at += 3;
        if (end - at >= 2 && *at == '.' && is_digit(at[1])) {
            int weight = 100000000;
            for (at++; at < end && is_digit(*at); at++, weight /= 10) {
                if (!weight && *at != '0') return CSV_BAD; /* finer than a nanosecond */
                value->nanos += (*at - '0') * weight;
            }
        }
    }
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59)
        return CSV_BAD;
    value->seconds += hour * 3600 + minute * 60 + second;
    if (at == end) return CSV_GOOD;
    int offset;
    if (!parse_zone(at, (size_t)(end - at), &offset)) return CSV_BAD;
    value->seconds -= offset;
    value->zoned = true;
    return CSV_GOOD;
}

static int kind_of_integer(bool negative, uint64_t magnitude) {
    if (magnitude <= 1ull << 53) return CSV_INT;
    return magnitude <= (uint64_t)INT64_MAX + negative ? CSV_BIG_INT : CSV_TEXT;
}

/* The kind of [-]digits[.digits] of moderate length, or 0 where the text is anything else.
 *
 * Nearly every number looks so, and to know its kind takes no value. */
static int plain_number(const uint8_t *at, size_t bytes) {
    enum { FEW_DIGITS = 15, FEW_BYTES = 32 }; /* 10^15 is less than 2^53 */
    if (bytes > FEW_BYTES) return 0;
    const uint8_t *end = at + bytes;
    at += *at == '-';
    if (end - at >= 2 && *at == '0' && is_digit(at[1])) return 0;
    const uint8_t *start = at;
    while (at < end && is_digit(*at)) at++;
    ptrdiff_t whole = at - start;
    if (at == end) return whole && whole <= FEW_DIGITS ? CSV_INT : 0;
    if (*at++ != '.') return 0;
    start = at;
    while (at < end && is_digit(*at)) at++;
    return at == end && whole + (at - start) ? CSV_FLOAT : 0;
}

int csv_kind(const uint8_t *at, size_t bytes) {
    int plain = bytes ? plain_number(at, bytes) : 0;
    if (plain) return plain;
    csv_trim(&at, &bytes);
    if (!bytes) return CSV_NOTHING;
    bool negative, flag;
    uint64_t magnitude;
    double number;
    int8_t side;
    const uint8_t *first = at + (*at == '-');
    size_t left = bytes - (size_t)(first - at);
    /* 007 and -01 are names made of digits: a number would lose the zeros. */
    if (left >= 2 && *first == '0' && is_digit(first[1])) {
        CsvTime early;
        if (left < 10 || csv_parse_time(at, bytes, &early) != CSV_GOOD) return CSV_TEXT;
    } else if (csv_parse_int(at, bytes, &negative, &magnitude) == CSV_GOOD) {
        return kind_of_integer(negative, magnitude);
    }
    if (bytes >= 10 && at[4] == '-') {
        CsvTime time;
        if (csv_parse_time(at, bytes, &time) == CSV_GOOD) {
            if (time.dated) return CSV_DATE;
            if (time.nanos % 1000) return CSV_TEXT;
            return time.zoned ? CSV_ZONED_TIME : CSV_TIME;
        }
    }
    bool point = false;
    for (size_t i = 0; i < left && !point; i++) point = !is_digit(first[i]);
    if (!point) return CSV_TEXT; /* an integer beyond int64 */
    if (csv_parse_double(at, bytes, &number, &side) != CSV_BAD) return CSV_FLOAT;
    /* A lone digit was an integer above, so this sees words only. */
    return csv_parse_bool(at, bytes, &flag) == CSV_GOOD ? CSV_BOOL : CSV_TEXT;
}
