package beamtfrecord;

import java.nio.ByteBuffer;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Arrays;

/** A column of truth values, a bit each. */
class Bits extends Column {
    private byte[] values = new byte[64];

    @Override
    void clear() {
        Arrays.fill(values, 0, bits(count), (byte) 0);
        super.clear();
    }

    @Override
    boolean read(ResultSet row, int index) throws SQLException {
        boolean value = row.getBoolean(index);
        return put(value, value || !row.wasNull());
    }

    @Override
    boolean set(Object item) {
        return put((Boolean) item, true);
    }

    @Override
    final boolean skip() {
        return put(false, false);
    }

    final boolean put(boolean value, boolean present) {
        if (bits(count + 1) > values.length) {
            values = Arrays.copyOf(values, 2 * values.length);
        }
        if (value) {
            values[count >> 3] |= (byte) (1 << (count & 7));
        }
        return present;
    }

    @Override
    long valueBytes() {
        return bits(count);
    }

    @Override
    void writeValues(ByteBuffer out) {
        put(out, values, bits(count));
    }
}
