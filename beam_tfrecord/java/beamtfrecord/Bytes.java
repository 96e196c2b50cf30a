package beamtfrecord;

import java.io.IOException;
import java.io.InputStream;
import java.io.Reader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.util.Arrays;

/** A column of text as UTF-8, or of bytes: offsets of 32 bits and the bytes of all values. */
abstract class Bytes extends Column {
    /** No Java array is longer, nor can offsets of 32 bits reach further. */
    private static final int MAX_BYTES = Integer.MAX_VALUE - 64;

    private static final int CHUNK = 1 << 16;

    private int[] offsets = new int[64];
    private byte[] data = new byte[CHUNK];
    private int length;

    @Override
    void clear() {
        super.clear();
        length = 0;
    }

    final boolean put(byte[] value) {
        if (value != null) {
            reserve(value.length);
            System.arraycopy(value, 0, data, length, value.length);
            length += value.length;
        }
        return end(value != null);
    }

    final boolean put(String value) {
        return put(value == null ? null : value.getBytes(StandardCharsets.UTF_8));
    }

    /** Copies a value that is too long to be held twice. */
    final boolean put(InputStream value) throws SQLException {
        if (value == null) {
            return end(false);
        }
        try (InputStream open = value) {
            while (true) {
                reserve(CHUNK);
                int copied = open.read(data, length, CHUNK);
                if (copied < 0) {
                    return end(true);
                }
                length += copied;
            }
        } catch (IOException cause) {
            throw new SQLException("cannot read further: " + cause.getMessage(), "08006", cause);
        }
    }

    /** Copies a text that is too long to be held twice. */
    final boolean put(Reader value) throws SQLException {
        if (value == null) {
            return end(false);
        }
        char[] part = new char[CHUNK];
        int rest = 0;
        try (Reader open = value) {
            while (true) {
                int copied = open.read(part, rest, part.length - rest);
                int filled = rest + Math.max(copied, 0);
                // A pair of surrogates is one character of UTF-8: never cut between the two.
                boolean isCut = copied >= 0 && filled > 0
                        && Character.isHighSurrogate(part[filled - 1]);
                int ready = isCut ? filled - 1 : filled;
                byte[] bytes = new String(part, 0, ready).getBytes(StandardCharsets.UTF_8);
                reserve(bytes.length);
                System.arraycopy(bytes, 0, data, length, bytes.length);
                length += bytes.length;
                rest = filled - ready;
                if (rest > 0) {
                    part[0] = part[ready];
                }
                if (copied < 0) {
                    return end(true);
                }
            }
        } catch (IOException cause) {
            throw new SQLException("cannot read further: " + cause.getMessage(), "08006", cause);
        }
    }

    @Override
    final boolean skip() {
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

    private void reserve(int more) {
        long needed = (long) length + more;
        if (needed > MAX_BYTES) {
            throw new ArithmeticException("a value longer than 2 GiB cannot be read");
        }
        if (needed > data.length) {
            data = Arrays.copyOf(data, (int) Math.min(MAX_BYTES, Math.max(needed, 2L * data.length)));
        }
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
