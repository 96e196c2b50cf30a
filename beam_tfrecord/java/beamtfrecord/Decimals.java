package beamtfrecord;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.sql.ResultSet;
import java.sql.SQLException;

/** Decimals of one precision and scale, as two's complement of 128 or 256 bits. */
final class Decimals extends Longs {
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
