package beamtfrecord;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.OutputStreamWriter;
import java.io.Reader;
import java.io.Writer;
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
    private final Sink sink = new Sink();
    private final Getter getter;

    /** Puts the value of the current row into a column; false for NULL. */
    interface Getter {
        boolean get(Bytes into, ResultSet row, int index) throws SQLException;
    }

    Bytes(Getter getter) {
        this.getter = getter;
    }

    @Override
    boolean read(ResultSet row, int index) throws SQLException {
        return getter.get(this, row, index);
    }

    /** Appends to the bytes of the value that is read. */
    private final class Sink extends OutputStream {
        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            add(bytes, from, count);
        }
    }

    @Override
    void clear() {
        super.clear();
        length = 0;
    }

    boolean put(byte[] value) {
        if (value != null) {
            add(value, 0, value.length);
        }
        return end(value != null);
    }

    boolean put(String value) {
        return put(value == null ? null : value.getBytes(UTF_8));
    }

    /** Copies a value that is too long to be held twice. */
    boolean put(InputStream value) throws SQLException {
        if (value == null) {
            return end(false);
        }
        try (InputStream open = value) {
            open.transferTo(sink);
        } catch (IOException cause) {
            throw brokenOff(cause);
        }
        return end(true);
    }

    /** Copies a text that is too long to be held twice. */
    boolean put(Reader value) throws SQLException {
        if (value == null) {
            return end(false);
        }
        // The writer never cuts a pair of surrogates, which is one character of UTF-8.
        try (Reader open = value; Writer writer = new OutputStreamWriter(sink, UTF_8)) {
            open.transferTo(writer);
        } catch (IOException cause) {
            throw brokenOff(cause);
        }
        return end(true);
    }

    private static SQLException brokenOff(IOException cause) {
        return new SQLException("cannot read further: " + cause.getMessage(), "08006", cause);
    }

    @Override
    boolean skip() {
        length = offsets[count];
        return end(false);
    }

    private boolean end(boolean present) {
        if (count + 1 >= offsets.length) {
            offsets = Arrays.copyOf(offsets, 2 * offsets.length);
        }
        offsets[count + 1] = length;
        return present;
    }

    private void add(byte[] bytes, int from, int count) {
        long needed = (long) length + count;
        if (needed > MAX_BYTES) {
            throw new ArithmeticException("a value longer than 2 GiB cannot be read");
        }
        if (needed > data.length) {
            data = Arrays.copyOf(data, (int) Math.min(MAX_BYTES, Math.max(needed, 2L * data.length)));
        }
        System.arraycopy(bytes, from, data, length, count);
        length += count;
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
    int variableLength() {
        return length;
    }

    @Override
    void writeValues(ByteBuffer out) {
        put(out, offsets, count + 1);
        put(out, data, length);
    }
}
