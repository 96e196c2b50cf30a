#include <math.h>

#include "csv.h"

BT_INLINE bool is_digit(uint8_t byte) { return (uint8_t)(byte - '0') < 10; }
BT_INLINE bool is_blank(uint8_t byte) { return byte == ' ' || byte == '\t'; }

bool csv_is_word(const CsvWords *words, const uint8_t *at, size_t bytes) {
    if (!bytes || bytes > words->longest || !csv_may_be_word(words, *at)) return false;
    uint32_t start = 0;
    for (uint32_t i = 0; i < words->count; start = words->ends[i++])
        if (words->ends[i] - start == bytes && !memcmp(words->text + start, at, bytes)) return true;
    return false;
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

/* The kind of [-]digits[.digits] of moderate length, or 0 if the text is anything else.
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

/* Decimal to binary, correctly rounded.
 *
 * Short numbers take Clinger's exact path (a product or quotient of two exact doubles); others
 * Eisel's and Lemire's ("Number Parsing at a Gigabyte per Second", 2021): the 64-bit significand
 * times 128 bits of the power of five. What these cannot decide is left to the caller. */

enum { MIN_POWER = -342, MAX_POWER = 308, EXACT_DIGITS = 19 };

static const uint64_t *powers_of_five;

void csv_set_powers_of_five(const uint64_t *powers) { powers_of_five = powers; }

typedef struct {
    bool negative;
    bool cut;        /* digits after the 19th are not all zero */
    uint64_t digits; /* the first 19 significant ones */
    int64_t power;   /* of ten */
} Decimal;

BT_INLINE const uint8_t *take_digits(const uint8_t *at, const uint8_t *end, Decimal *number,
                                     unsigned *kept, int64_t step) {
    for (; at < end && is_digit(*at); at++) {
        unsigned digit = *at - '0';
        if (BT_LIKELY(*kept < EXACT_DIGITS)) {
            number->digits = number->digits * 10 + digit;
            *kept += number->digits != 0;
            number->power += step;
        } else {
            number->cut |= digit != 0;
            number->power += step + 1;
        }
    }
    return at;
}

static bool take_decimal(const uint8_t *at, const uint8_t *end, Decimal *number) {
    *number = (Decimal){0};
    number->negative = at < end && *at == '-';
    at += number->negative;
    const uint8_t *start = at;
    unsigned kept = 0;
    /* A digit before the point leaves the power as it is, one after it lowers it by one; one
     * that is not kept raises it by one. */
    at = take_digits(at, end, number, &kept, 0);
    ptrdiff_t count = at - start;
    if (at < end && *at == '.') {
        start = ++at;
        at = take_digits(at, end, number, &kept, -1);
        count += at - start;
    }
    if (!count) return false;
    if (at == end) return true;
    if (*at != 'e' && *at != 'E') return false;
    at++;
    bool down = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+')) at++;
    if (at == end) return false;
    int64_t power = 0;
    for (; at < end && is_digit(*at); at++)
        if (power < 1000000) power = power * 10 + (*at - '0');
    number->power += down ? -power : power;
    return at == end;
}

static bool is_like(const uint8_t *at, size_t bytes, const char *word) {
    for (; bytes; at++, word++, bytes--)
        if (!*word || (*at | 0x20) != (uint8_t)*word) return false;
    return !*word;
}

static int parse_special(const uint8_t *at, size_t bytes, double *value) {
    bool negative = bytes && *at == '-';
    at += negative;
    bytes -= negative;
    if (is_like(at, bytes, "nan")) *value = negative ? -NAN : NAN;
    else if (is_like(at, bytes, "inf") || is_like(at, bytes, "infinity"))
        *value = negative ? -INFINITY : INFINITY;
    else return CSV_BAD;
    return CSV_GOOD;
}

/* digits * 10^power, as the bits of a double. */
static int round_product(uint64_t digits, int64_t power, uint64_t *bits) {
    if (!digits) {
        *bits = 0;
        return CSV_GOOD;
    }
    if (power > MAX_POWER) return CSV_BAD;
    if (power < MIN_POWER) return CSV_HARD;
    int zeros = __builtin_clzll(digits);
    digits <<= zeros;
    const uint64_t *five = powers_of_five + 2 * (power - MIN_POWER);
    unsigned __int128 product = (unsigned __int128)digits * five[0];
    uint64_t high = (uint64_t)(product >> 64), low = (uint64_t)product;
    if ((high & 0x1ff) == 0x1ff) { /* the second half of the power may carry into the result */
        uint64_t more = (uint64_t)((unsigned __int128)digits * five[1] >> 64);
        low += more;
        high += low < more;
    }
    if (low == UINT64_MAX && (power < -27 || power > 55)) return CSV_HARD;
    int upper = (int)(high >> 63);
    uint64_t significand = high >> (upper + 9); /* 54 bits: one more than a double has */
    int64_t exponent = ((217706 * power) >> 16) + 63 + upper - zeros + 1023;
    if (exponent <= 0) return CSV_HARD;
    /* Exactly between two doubles: round to even, so drop the bit that would round up. */
    if (low <= 1 && power >= -4 && power <= 23 && (significand & 3) == 1 &&
        significand << (upper + 9) == high)
        significand &= ~1ull;
    significand = (significand + (significand & 1)) >> 1;
    if (significand >> 53) {
        significand = 1ull << 52;
        exponent++;
    }
    if (exponent >= 0x7ff) return CSV_BAD;
    *bits = (significand & ((1ull << 52) - 1)) | (uint64_t)exponent << 52;
    return CSV_GOOD;
}

/* Exactly between two float32: rounding there again would forget on which side the number lies. */
BT_INLINE bool is_halfway(uint64_t bits) {
    static const uint64_t LEAST_NORMAL = 897; /* exponent of 2^-126, from where floats have 24 bits */
    uint64_t exponent = bits >> 52;
    if (BT_LIKELY(exponent >= LEAST_NORMAL)) return (bits & 0x1fffffff) == 0x10000000;
    uint64_t half = LEAST_NORMAL + 28 - exponent; /* the bit below the last one of the float */
    uint64_t significand = (bits & ((1ull << 52) - 1)) | 1ull << 52;
    return half <= 52 && significand << (63 - half) == 1ull << 63;
}

enum { UNKNOWN = 3 };

/* A number of fewer digits comes back from a double. */
static const uint64_t ALWAYS_STANDS = 1000000000000000;

BT_INLINE void drop_zero(Decimal *number) {
    number->digits /= 10;
    number->power++;
}

/* On which side of the double with these bits, the nearest, the number lies, as in `side` of
 * csv_parse_double, or UNKNOWN.
 *
 * Compares m * 2^e * 10^-power with the digits, in 128 bits of which the last few may be wrong. */
static int side_of(Decimal *number, uint64_t bits) {
    enum { SLACK = 4, EXACT_FIVES = 27 }; /* 5^27 fits into 64 bits */
    if (!number->cut) {
        while (number->power < 0 && number->digits % 10 == 0) drop_zero(number);
        if (number->power == 0 && number->digits <= 1ull << 53) return 0;
        while (number->digits % 10 == 0) drop_zero(number);
        if (number->digits < ALWAYS_STANDS && !is_halfway(bits)) return 0;
    }
    int64_t fives = -number->power;
    if (fives < MIN_POWER || fives > MAX_POWER || !(bits >> 52)) return UNKNOWN;
    const uint64_t *five = powers_of_five + 2 * (fives - MIN_POWER);
    uint64_t significand = (bits & ((1ull << 52) - 1)) | 1ull << 52;
    __int128 value = (__int128)significand * five[0] +
                     (__int128)((unsigned __int128)significand * five[1] >> 64);
    int64_t shift = 63 - ((int64_t)(bits >> 52) - 1075) - ((217706 * fives) >> 16);
    if (shift < 8 || shift > 100) return UNKNOWN;
    __int128 unit = (__int128)1 << shift, past = value - ((__int128)number->digits << shift);
    bool exact = fives >= 0 && fives <= EXACT_FIVES;
    if (number->cut) { /* the number is more than its digits, by less than a unit */
        if (past <= -SLACK || (exact && past <= 0)) return 1;
        return past >= unit + SLACK ? -1 : UNKNOWN;
    }
    if (exact && past == 0) return 0;
    __int128 apart = past < 0 ? -past : past;
    if (apart >= unit / 2 - SLACK)
        return apart <= unit / 2 + SLACK ? UNKNOWN : past < 0 ? 1 : -1;
    if (!is_halfway(bits)) return 0;
    return apart <= SLACK ? UNKNOWN : past < 0 ? 2 : -2;
}

int csv_parse_double(const uint8_t *at, size_t bytes, double *value, int8_t *side) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    Decimal number;
    if (!take_decimal(at, at + bytes, &number)) return parse_special(at, bytes, value);
    uint64_t bits;
    if (!number.cut && number.digits <= 1ull << 53 && number.power >= -22 && number.power <= 22) {
        double exact = (double)number.digits;
        exact = number.power < 0 ? exact / tens[-number.power] : exact * tens[number.power];
        memcpy(&bits, &exact, 8);
    } else {
        int result = round_product(number.digits, number.power, &bits);
        if (result == CSV_GOOD && number.cut) {
            uint64_t above;
            if (round_product(number.digits + 1, number.power, &above) != CSV_GOOD ||
                above != bits)
                return CSV_HARD;
        }
        if (result != CSV_GOOD) return result;
    }
    if (BT_UNLIKELY(number.digits >= ALWAYS_STANDS || is_halfway(bits))) {
        int found = side_of(&number, bits);
        if (found == UNKNOWN) return CSV_HARD;
        if (found) *side = (int8_t)(number.negative ? -found : found);
    }
    bits |= (uint64_t)number.negative << 63;
    memcpy(value, &bits, 8);
    return CSV_GOOD;
}
