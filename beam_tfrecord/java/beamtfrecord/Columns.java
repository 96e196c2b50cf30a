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

/** Makes the column of a kind: the getter that loses nothing, and the storage for what it gives. */
final class Columns {
    private Columns() {}

    /**
     * Makes a column.
     *
     * @param kind name of a kind, as in the cases below; {@code decimal:12:2} for 12 digits, 2 of
     *     them after the point; {@code list:} before the kind of the items of lists
     */
    static Column make(String kind) {
        if (kind.startsWith("list:")) {
            return new Lists(make(kind.substring("list:".length())));
        }
        if (kind.startsWith("strict:")) {
            return Strict.make(kind.substring("strict:".length()));
        }
        if (kind.startsWith("decimal:")) {
            String[] digits = kind.split(":");
            return new Decimals(Integer.parseInt(digits[1]), Integer.parseInt(digits[2]));
        }
        switch (kind) {
            case "bool":
                return new Bits();
            case "int32":
                return new Ints() {
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
                return new Longs(1) {
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
            case "whole":
                return new Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        BigDecimal value = row.getBigDecimal(index);
                        return value == null ? skip() : put(value.longValueExact(), true);
                    }
                };
            case "uint64":
                return new Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        BigDecimal value = row.getBigDecimal(index);
                        return value == null ? skip() : put(unsigned(value), true);
                    }
                };
            case "float32":
                return new Ints() {
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
                return new Longs(1) {
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
                return new Ints() {
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
                return new Longs(1) {
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
                return new Longs(1) {
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
                return new Longs(1) {
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
        BigInteger whole = value.toBigIntegerExact();
        if (whole.signum() < 0 || whole.bitLength() > Long.SIZE) {
            throw new ArithmeticException("it is no unsigned integer of 64 bits");
        }
        return whole.longValue();
    }
}
