package beamtfrecord;

import java.nio.ByteBuffer;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Arrays;

/** A column of text as UTF-8, or of bytes: offsets of 32 bits and the bytes of all values. */
final class Bytes extends Column {
    /** No Java array is longer, nor can offsets of 32 bits reach further. */
    private static final int MAX_BYTES = Integer.MAX_VALUE - 64;

    private int[] offsets = new int[64];
    private byte[] data = new byte[1 << 16];
    private int length;
    private final Columns.Getter<byte[]> getter;

    Bytes(Columns.Getter<byte[]> getter) {
        this.getter = getter;
    }

    @Override
    boolean read(ResultSet row, int index) throws SQLException {
        byte[] value = getter.get(row, index);
        if (value != null) {
            add(value);
        }
        return end(value != null);
    }

    @Override
    void clear() {
        super.clear();
        length = 0;
    }

    @Override
    boolean skip() {
        return end(false);
    }

    private boolean end(boolean present) {
        if (count + 1 >= offsets.length) {
            offsets = Arrays.copyOf(offsets, 2 * offsets.length);
        }
        offsets[count + 1] = length;
        return present;
    }

    private void add(byte[] value) {
        long needed = (long) length + value.length;
        if (needed > MAX_BYTES) {
            throw new ArithmeticException("a value longer than 2 GiB cannot be read");
        }
        if (needed > data.length) {
            data = Arrays.copyOf(data, (int) Math.min(MAX_BYTES, Math.max(needed, 2L * data.length)));
        }
        System.arraycopy(value, 0, data, length, value.length);
        length += value.length;
    }

    @Override
    long valueBytes() {
        return padded((long) Integer.BYTES * (count + 1)) + length;
    }

    @Override
    boolean isVariable() {
        return true;
    }

    @Override
    int[] layout() {
        return new int[] {nulls(), bits(count), Integer.BYTES * (count + 1), length};
    }

    @Override
    void writeValues(ByteBuffer out) {
        put(out, offsets, count + 1);
        put(out, data, length);
    }
}
