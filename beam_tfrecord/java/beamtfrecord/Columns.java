package beamtfrecord;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;

/** Creates the column for a kind: a getter that loses nothing, and storage for its values. */
final class Columns {
    private Columns() {}

    /**
     * Creates a column.
     *
     * @param kind name of a kind, as in the cases below; {@code decimal:12:2} for 12 digits, 2 of
     *     them after the point; {@code list:} before the kind of the items of lists
     */
    static Column make(String kind) {
        if (kind.startsWith("list:")) {
            return new Lists(make(kind.substring("list:".length())));
        }
        if (kind.startsWith("strict:")) {
            return strict(kind.substring("strict:".length()));
        }
        if (kind.startsWith("decimal:")) {
            String[] digits = kind.split(":");
            return new Decimals(Integer.parseInt(digits[1]), Integer.parseInt(digits[2]));
        }
        switch (kind) {
            case "bool":
                return new Column.Bits();
            case "int32":
                return new Column.Ints() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        int value = row.getInt(index);
                        return put(value, value != 0 || !row.wasNull());
                    }

                    @Override
                    boolean set(Object item) {
                        return put(Math.toIntExact(((Number) item).longValue()), true);
                    }
                };
            case "int64":
                return new Column.Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        long value = row.getLong(index);
                        return put(value, value != 0 || !row.wasNull());
                    }

                    @Override
                    boolean set(Object item) {
                        return put(((Number) item).longValue(), true);
                    }
                };
            case "integer":
                return new Column.Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        BigDecimal value = row.getBigDecimal(index);
                        return value == null ? skip() : put(value.longValueExact(), true);
                    }
                };
            case "uint64":
                return new Column.Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        BigDecimal value = row.getBigDecimal(index);
                        return value == null ? skip() : put(unsigned(value), true);
                    }
                };
            case "float32":
                return new Column.Ints() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        float value = row.getFloat(index);
                        // Some drivers answer NaN, not 0, for NULL.
                        boolean isPlain = value != 0 && !Float.isNaN(value);
                        return put(Float.floatToRawIntBits(value), isPlain || !row.wasNull());
                    }

                    @Override
                    boolean set(Object item) {
                        return put(Float.floatToRawIntBits((Float) item), true);
                    }
                };
            case "float64":
                return new Column.Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        double value = row.getDouble(index);
                        boolean isPlain = value != 0 && !Double.isNaN(value);
                        return put(Double.doubleToRawLongBits(value), isPlain || !row.wasNull());
                    }

                    @Override
                    boolean set(Object item) {
                        return put(Double.doubleToRawLongBits((Double) item), true);
                    }
                };
            case "text":
                return new Bytes() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        return put(row.getString(index));
                    }

                    @Override
                    boolean set(Object item) {
                        return put(item.toString());
                    }
                };
            case "binary":
                return new Bytes() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        return put(row.getBytes(index));
                    }

                    @Override
                    boolean set(Object item) {
                        return put((byte[]) item);
                    }
                };
            case "long_text":
                return new Bytes() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        return put(row.getCharacterStream(index));
                    }
                };
            case "long_binary":
                return new Bytes() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        return put(row.getBinaryStream(index));
                    }
                };
            default:
                return moment(kind);
        }
    }

    private static Column moment(String kind) {
        switch (kind) {
            case "date":
                return new Column.Ints() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        LocalDate value = row.getObject(index, LocalDate.class);
                        return value == null
                                ? skipNull(this, row, index)
                                : put(Moments.days(value), true);
                    }
                };
            case "time_us":
            case "time_ns":
                return new Column.Longs(1) {
                    private final boolean isMicros = kind.equals("time_us");

                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        LocalTime value = row.getObject(index, LocalTime.class);
                        if (value == null) {
                            return skip();
                        }
                        return put(isMicros
                                ? Moments.microsOfDay(value, row, index)
                                : Moments.nanosOfDay(value, row, index), true);
                    }
                };
            case "timestamp_us":
            case "timestamp_ns":
                return new Column.Longs(1) {
                    private final boolean isMicros = kind.equals("timestamp_us");

                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        LocalDateTime value = row.getObject(index, LocalDateTime.class);
                        if (value == null) {
                            return skipNull(this, row, index);
                        }
                        return put(isMicros ? Moments.micros(value) : Moments.nanos(value), true);
                    }
                };
            case "instant_us":
            case "instant_ns":
                return new Column.Longs(1) {
                    private final boolean isMicros = kind.equals("instant_us");

                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        OffsetDateTime zoned = row.getObject(index, OffsetDateTime.class);
                        if (zoned == null) {
                            return skip();
                        }
                        LocalDateTime value = Moments.utc(zoned);
                        return put(isMicros ? Moments.micros(value) : Moments.nanos(value), true);
                    }
                };
            default:
                throw new IllegalArgumentException("no column is of kind " + kind);
        }
    }

    private static boolean skipNull(Column column, ResultSet row, int index) throws SQLException {
        Moments.checkNull(row, index);
        return column.skip();
    }

    private static long unsigned(BigDecimal value) {
        BigInteger integer = value.toBigIntegerExact();
        if (integer.signum() < 0 || integer.bitLength() > Long.SIZE) {
            throw new ArithmeticException("it is no unsigned integer of 64 bits");
        }
        return integer.longValue();
    }

    /**
     * Creates a column that accepts values of one class only.
     *
     * <p>A column of SQLite holds any kind of value, and the driver's getters turn what they do not
     * understand into 0 or into text. Only the object's class shows the kind.
     */
    private static Column strict(String kind) {
        switch (kind) {
            case "int64":
                return new Column.Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        Object value = row.getObject(index);
                        return value == null ? skip() : put(integer(value), true);
                    }
                };
            case "bool":
                return new Column.Bits() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        Object value = row.getObject(index);
                        if (value != null && (integer(value) | 1) != 1) {
                            throw new ArithmeticException("it is neither 0 nor 1");
                        }
                        return value == null ? skip() : put(integer(value) == 1, true);
                    }
                };
            case "float64":
                return new Column.Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        Object value = row.getObject(index);
                        return value == null
                                ? skip()
                                : put(Double.doubleToRawLongBits(real(value)), true);
                    }
                };
            case "text":
                return new Bytes() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        return put(as(String.class, row.getObject(index), "text"));
                    }
                };
            case "any":
                return new Bytes() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        Object value = row.getObject(index);
                        if (value instanceof byte[]) {
                            throw new ArithmeticException("a blob is no text");
                        }
                        return put(value == null ? null : value.toString());
                    }
                };
            case "binary":
                return new Bytes() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        return put(as(byte[].class, row.getObject(index), "a blob"));
                    }
                };
            default:
                throw new IllegalArgumentException("no strict column is of kind " + kind);
        }
    }

    private static long integer(Object value) {
        if (value instanceof Long || value instanceof Integer) {
            return ((Number) value).longValue();
        }
        throw new ArithmeticException("it is no integer");
    }

    private static double real(Object value) {
        if (value instanceof Double) {
            return (Double) value;
        }
        long integer = integer(value);
        if ((long) (double) integer != integer || integer == Long.MAX_VALUE) {
            throw new ArithmeticException("no float holds it exactly");
        }
        return integer;
    }

    private static <T> T as(Class<T> type, Object value, String name) {
        if (value != null && !type.isInstance(value)) {
            throw new ArithmeticException("it is not " + name);
        }
        return type.cast(value);
    }

    /** Decimals of one precision and scale, as two's complement of 128 or 256 bits. */
    private static final class Decimals extends Column.Longs {
        private static final int MAX_DIGITS_OF_TWO_WORDS = 38;

        private final int words;
        private final int precision;
        private final int scale;

        Decimals(int precision, int scale) {
            super(wordsOf(precision));
            this.words = wordsOf(precision);
            this.precision = precision;
            this.scale = scale;
        }

        private static int wordsOf(int precision) {
            return precision <= MAX_DIGITS_OF_TWO_WORDS ? 2 : 4;
        }

        @Override
        boolean read(ResultSet row, int index) throws SQLException {
            BigDecimal value = row.getBigDecimal(index);
            return value == null ? skip() : set(value);
        }

        @Override
        boolean set(Object item) {
            BigDecimal value = ((BigDecimal) item).setScale(scale, RoundingMode.UNNECESSARY);
            if (value.precision() > precision) {
                throw new ArithmeticException("it has more than " + precision + " digits");
            }
            BigInteger digits = value.unscaledValue();
            // Most decimals are short: their higher words are but the sign.
            boolean isShort = digits.bitLength() < Long.SIZE;
            put(0, digits.longValue());
            for (int word = 1; word < words; word++) {
                put(word, isShort ? digits.signum() >> 1 : digits.shiftRight(Long.SIZE * word).longValue());
            }
            return true;
        }
    }
}
