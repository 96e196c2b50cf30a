package beamtfrecord;

import java.nio.ByteBuffer;
import java.sql.Array;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Arrays;
import java.util.List;

/** A column of one-dimensional arrays: offsets of 32 bits, and a column of all items. */
final class Lists extends Column {
    private final Column items;
    private int[] offsets = new int[64];

    Lists(Column items) {
        this.items = items;
    }

    @Override
    void clear() {
        super.clear();
        items.clear();
    }

    @Override
    boolean read(ResultSet row, int index) throws SQLException {
        Array array = row.getArray(index);
        if (array == null) {
            return skip();
        }
        for (Object item : (Object[]) array.getArray()) {
            if (item != null && item.getClass().isArray() && !(item instanceof byte[])) {
                throw new ArithmeticException("an array of more than one dimension is not a list");
            }
            items.append(item);
        }
        array.free();
        end();
        return true;
    }

    @Override
    boolean skip() {
        end();
        return false;
    }

    private void end() {
        if (count + 1 >= offsets.length) {
            offsets = Arrays.copyOf(offsets, 2 * offsets.length);
        }
        offsets[count + 1] = items.count;
    }

    @Override
    long valueBytes() {
        return padded((long) Integer.BYTES * (count + 1)) + items.blockBytes();
    }

    @Override
    boolean isVariable() {
        return true;
    }

    @Override
    int variableLength() {
        return items.count;
    }

    @Override
    void describe(List<Integer> into) {
        super.describe(into);
        items.describe(into);
    }

    @Override
    void writeValues(ByteBuffer out) {
        put(out, offsets, count + 1);
        items.write(out);
    }
}
