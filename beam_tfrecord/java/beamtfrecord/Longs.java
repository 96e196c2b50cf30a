package beamtfrecord;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** A column of one or more 64-bit words a value, least significant word first. */
abstract class Longs extends Column {
    private final int words;
    private long[] values;

    Longs(int words) {
        this.words = words;
        values = new long[64 * words];
    }

    /** Stores the only word of a value and returns whether it is one. */
    final boolean put(long value, boolean present) {
        put(0, value);
        return present;
    }

    /** Stores one word of the value at {@link #count}. */
    final void put(int word, long value) {
        int position = words * count + word;
        if (position >= values.length) {
            values = Arrays.copyOf(values, 2 * values.length);
        }
        values[position] = value;
    }

    @Override
    final boolean skip() {
        for (int word = 0; word < words; word++) {
            put(word, 0);
        }
        return false;
    }

    @Override
    long valueBytes() {
        return (long) Long.BYTES * words * count;
    }

    @Override
    void writeValues(ByteBuffer out) {
        int length = words * count;
        out.asLongBuffer().put(values, 0, length);
        out.position(out.position() + Long.BYTES * length);
        align(out);
    }
}
