package beamtfrecord;

import java.sql.ResultSet;
import java.sql.SQLException;

/**
 * Makes columns that take values of one class only.
 *
 * <p>A column of SQLite holds whatever was put into it, and the driver's getters turn what they do
 * not understand into 0 or into text. The object it gives tells what there is.
 */
final class Strict {
    private Strict() {}

    static Column make(String kind) {
        switch (kind) {
            case "int64":
                return new Longs(1) {
                    @Override
                    boolean read(ResultSet row, int index) throws SQLException {
                        Object value = row.getObject(index);
                        return value == null ? skip() : put(integer(value), true);
                    }
                };
            case "bool":
                return new Bits() {
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
                return new Longs(1) {
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
        long whole = integer(value);
        if ((long) (double) whole != whole || whole == Long.MAX_VALUE) {
            throw new ArithmeticException("no float holds it exactly");
        }
        return whole;
    }

    private static <T> T as(Class<T> type, Object value, String name) {
        if (value != null && !type.isInstance(value)) {
            throw new ArithmeticException("it is not " + name);
        }
        return type.cast(value);
    }
}
