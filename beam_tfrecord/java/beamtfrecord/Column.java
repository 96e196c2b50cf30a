package beamtfrecord;

import java.nio.ByteBuffer;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Arrays;

/**
 * One column of a block in Arrow's layout: a validity bit per row, and values in a subclass.
 *
 * <p>The arrays live as long as the read and are filled anew for every block, so that a block costs
 * no garbage but what the driver itself makes.
 */
abstract class Column {
    /** Arrow wants buffers at multiples of 64 bytes. */
    private static final int ALIGNMENT = 64;

    private byte[] validity = new byte[ALIGNMENT];
    private int nulls;

    /** Values so far in this block. */
    int count;

    /** Forgets the values of the last block. */
    void clear() {
        Arrays.fill(validity, 0, bits(count), (byte) 0);
        count = 0;
        nulls = 0;
    }

    /** Appends the value of the current row at the position {@code index}, counted from 1. */
    final void append(ResultSet row, int index) throws SQLException {
        mark(read(row, index));
    }

    /** Appends a NULL in place of a value that could not be read, or only in part. */
    final void appendNull() {
        mark(skip());
    }

    private void mark(boolean present) {
        if (bits(count + 1) > validity.length) {
            validity = Arrays.copyOf(validity, 2 * validity.length);
        }
        if (!present) {
            nulls++;
        } else {
            validity[count >> 3] |= (byte) (1 << (count & 7));
        }
        count++;
    }

    /** Stores the value of the current row at {@link #count}; false for NULL. */
    abstract boolean read(ResultSet row, int index) throws SQLException;

    /** Stores a NULL at {@link #count}, over what a failed read left there; false. */
    abstract boolean skip();

    /** Bytes of the values, without validity. */
    abstract long valueBytes();

    /** Bytes of the column, including alignment. */
    long blockBytes() {
        return padded(bits(count)) + padded(valueBytes());
    }

    /** Returns the number of NULLs. */
    final int nulls() {
        return nulls;
    }

    /** Returns whether the bytes of a value depend on the value. */
    boolean isVariable() {
        return false;
    }

    /** Returns the number of NULLs, and the bytes of each buffer. */
    int[] layout() {
        return new int[] {nulls, bits(count), (int) valueBytes()};
    }

    /** Writes validity and values. */
    void write(ByteBuffer out) {
        put(out, validity, bits(count));
        writeValues(out);
    }

    abstract void writeValues(ByteBuffer out);

    static int bits(int count) {
        return (count + 7) >> 3;
    }

    static long padded(long bytes) {
        return (bytes + ALIGNMENT - 1) & -ALIGNMENT;
    }

    static void put(ByteBuffer out, byte[] bytes, int length) {
        out.put(bytes, 0, length);
        align(out);
    }

    static void put(ByteBuffer out, int[] values, int length) {
        out.asIntBuffer().put(values, 0, length);
        out.position(out.position() + Integer.BYTES * length);
        align(out);
    }

    static void align(ByteBuffer out) {
        out.position((int) padded(out.position()));
    }

    /** A column of truth values, a bit each. */
    static class Bits extends Column {
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

    /** A column of 32-bit values. */
    abstract static class Ints extends Column {
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

    /** A column of one or more 64-bit words per value, least significant word first. */
    abstract static class Longs extends Column {
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
}
