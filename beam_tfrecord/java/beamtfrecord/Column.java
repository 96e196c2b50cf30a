package beamtfrecord;

import java.nio.ByteBuffer;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Arrays;

/**
 * One column of a block in Arrow's layout: a bit of validity a row, and the values a subclass holds.
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

    /** Appends an item of a list. */
    final void append(Object item) throws SQLException {
        mark(item == null ? skip() : set(item));
    }

    /** Appends a NULL in place of a value that could not be read, or not whole. */
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

    /** Stores an item of a list, which is not null, at {@link #count}; true. */
    boolean set(Object item) throws SQLException {
        throw new ArithmeticException("a list of these is not supported");
    }

    /** Bytes of the values, without validity. */
    abstract long valueBytes();

    /** Bytes of the whole column, alignment included. */
    long blockBytes() {
        return padded(bits(count)) + padded(valueBytes());
    }

    /** Number of ints that {@link #describe} writes. */
    int descriptionLength() {
        return 2;
    }

    /** Writes NULLs and length of the variable part, then those of the items of a list. */
    int describe(int[] into, int at) {
        into[at] = nulls;
        into[at + 1] = variableLength();
        return at + 2;
    }

    /** Returns whether the bytes of a value depend on the value. */
    boolean isVariable() {
        return false;
    }

    int variableLength() {
        return 0;
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
}
