package beamtfrecord;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.function.ToLongFunction;

/** Creates the column for a type: a getter that loses nothing, and storage for its values. */
final class Columns {
    private Columns() {}

    /**
     * Creates a column.
     *
     * @param type name of an Arrow type, as in the cases below, or such as {@code decimal128(12, 2)}
     *     for 12 digits, 2 of them after the point
     */
    static Column make(String type) {
        if (type.startsWith("decimal")) {
            String[] digits = type.substring(type.indexOf('(') + 1, type.length() - 1).split(", ");
            return new Decimals(Integer.parseInt(digits[0]), Integer.parseInt(digits[1]));
        }
        int perSecond = type.contains("[ns") ? Moments.NANOS : Moments.MICROS;
        switch (type) {
            case "bool":
                return new Column.Bits();
            case "int32":
                return new Column.Ints() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        int value = row.getInt(index);
                        return put(value, value != 0 || !row.wasNull());
                    }
                };
            case "int64":
                return new Column.Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        long value = row.getLong(index);
                        return put(value, value != 0 || !row.wasNull());
                    }
                };
            case "uint64":
                return longs(ResultSet::getBigDecimal, Columns::unsigned);
            case "float":
                return new Column.Ints() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        float value = row.getFloat(index);
                        // Some drivers answer NaN, not 0, for NULL.
                        boolean isPlain = value != 0 && !Float.isNaN(value);
                        return put(Float.floatToRawIntBits(value), isPlain || !row.wasNull());
                    }
                };
            case "double":
                return new Column.Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        double value = row.getDouble(index);
                        boolean isPlain = value != 0 && !Double.isNaN(value);
                        return put(Double.doubleToRawLongBits(value), isPlain || !row.wasNull());
                    }
                };
            case "string":
                return new Bytes((row, index) -> utf8(row.getString(index)));
            case "binary":
                return new Bytes(ResultSet::getBytes);
            case "date32[day]":
                return new Column.Ints() {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        LocalDate value = Moments.date(row, index);
                        return value == null ? skip() : put(Math.toIntExact(value.toEpochDay()), true);
                    }
                };
            case "time64[us]":
            case "time64[ns]":
                return longs(Moments::time, (LocalTime value) -> Moments.ticks(value, perSecond));
            case "timestamp[us]":
            case "timestamp[ns]":
                return longs(
                        Moments::timestamp, (LocalDateTime value) -> Moments.ticks(value, perSecond));
            case "timestamp[us, tz=UTC]":
            case "timestamp[ns, tz=UTC]":
                return longs(
                        Moments::instant, (LocalDateTime value) -> Moments.ticks(value, perSecond));
            default:
                throw new IllegalArgumentException("no column is of type " + type);
        }
    }

    private static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(UTF_8);
    }

    /** A getter of objects: null for NULL. */
    interface Getter<T> {
        T get(ResultSet row, int index) throws SQLException;
    }

    private static <T> Column longs(Getter<T> getter, ToLongFunction<T> number) {
        return new Column.Longs(1) {
            @Override
            boolean read(ResultSet row, int index) throws SQLException {
                T value = getter.get(row, index);
                return value == null ? skip() : put(number.applyAsLong(value), true);
            }
        };
    }

    private static long unsigned(BigDecimal value) {
        BigInteger integer = value.toBigIntegerExact();
        if (integer.signum() < 0 || integer.bitLength() > Long.SIZE) {
            throw new ArithmeticException("it is not an unsigned integer of 64 bits");
        }
        return integer.longValue();
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
            BigDecimal exact = row.getBigDecimal(index);
            if (exact == null) {
                return skip();
            }
            BigDecimal value = exact.setScale(scale, RoundingMode.UNNECESSARY);
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
