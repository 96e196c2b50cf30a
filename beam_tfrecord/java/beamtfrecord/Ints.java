package beamtfrecord;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** A column of 32-bit values. */
abstract class Ints extends Column {
    private int[] values = new int[64];

    final boolean put(int value, boolean present) {
        if (count >= values.length) {
            values = Arrays.copyOf(values, 2 * values.length);
        }
        values[count] = value;
        return present;
    }

    @Override
    final boolean skip() {
        return put(0, false);
    }

    @Override
    long valueBytes() {
        return (long) Integer.BYTES * count;
    }

    @Override
    void writeValues(ByteBuffer out) {
        put(out, values, count);
    }
}
