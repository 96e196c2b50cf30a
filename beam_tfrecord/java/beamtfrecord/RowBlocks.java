package beamtfrecord;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Reads a result set as blocks of columns in Arrow's layout.
 *
 * <p>The caller calls {@link #start}, {@link #block} and {@link #layout} once per block, so few
 * calls cross between the languages, whatever the number of rows and columns. The next block is read
 * while the caller works on the last one.
 */
public final class RowBlocks {
    private static final int SHOWN_CHARACTERS = 200;

    /** Rows after which the width of a row is known, roughly and better, to choose a fetch size. */
    private static final int FEW_ROWS = 16;
    private static final int SAMPLED_ROWS = 256;

    private static final int MAX_FETCHED_ROWS = 10_000;

    private final ResultSet rows;
    private final Column[] columns;
    private final Column[] variable;
    private final long fixedRowBytes;
    private final long fetchedBytes;
    private ByteBuffer block = buffer(1 << 16);
    private final List<Misfit> misfits = new ArrayList<>();
    private int count;
    private boolean isAtEnd;

    /**
     * Reads a result set, which the caller closes.
     *
     * @param types one type per column, see {@link Columns}
     * @param fetchedBytes bytes to fetch at a time once the width of rows is known; 0 leaves the
     *     fetch size as it is
     */
    public RowBlocks(ResultSet rows, String[] types, long fetchedBytes) {
        this.rows = rows;
        this.fetchedBytes = fetchedBytes;
        columns = Arrays.stream(types).map(Columns::make).toArray(Column[]::new);
        variable = Arrays.stream(columns).filter(Column::isVariable).toArray(Column[]::new);
        // An estimate is enough here: it ends a block, and chooses how many rows to fetch.
        fixedRowBytes = (long) Long.BYTES * (columns.length - variable.length);
    }

    /**
     * Begins to read up to {@code maxRows} rows, fewer if they take {@code maxBytes}.
     *
     * <p>The result is the number of rows, 0 at the end. While it runs, the caller may read
     * the last {@link #block}, but must not call other methods.
     */
    public Task<Integer> start(int maxRows, long maxBytes) {
        return Task.start(() -> fetch(maxRows, maxBytes));
    }

    private int fetch(int maxRows, long maxBytes) throws SQLException {
        for (Column column : columns) {
            column.clear();
        }
        misfits.clear();
        count = 0;
        while (count < maxRows && !isAtEnd) {
            isAtEnd = !rows.next();
            if (isAtEnd) {
                break;
            }
            readRow();
            count++;
            long bytes = fixedRowBytes * count;
            for (Column column : variable) {
                bytes += column.valueBytes();
            }
            if (count == FEW_ROWS || count == SAMPLED_ROWS || bytes >= maxBytes) {
                chooseFetchSize(bytes / count);
            }
            if (bytes >= maxBytes) {
                break;
            }
        }
        return count;
    }

    private void readRow() throws SQLException {
        for (int index = 0; index < columns.length; index++) {
            try {
                columns[index].append(rows, index + 1);
            } catch (SQLException | RuntimeException cause) {
                if (!DriverError.kind(cause).isEmpty()) {
                    throw cause;
                }
                columns[index].appendNull();
                misfits.add(new Misfit(index, count, shown(index)));
            }
        }
    }

    private void chooseFetchSize(long rowBytes) throws SQLException {
        if (fetchedBytes > 0) {
            long fit = fetchedBytes / Math.max(rowBytes, 1);
            rows.setFetchSize((int) Math.max(1, Math.min(fit, MAX_FETCHED_ROWS)));
        }
    }

    private String shown(int index) {
        try {
            String value = rows.getString(index + 1);
            if (value == null) {
                return "";
            }
            return value.substring(0, Math.min(value.length(), SHOWN_CHARACTERS));
        } catch (SQLException | RuntimeException cause) {
            return "";
        }
    }

    /**
     * Returns the rows of the last {@link #start}: validity, offsets and values of each column,
     * each at a multiple of 64 bytes. The next call overwrites it.
     */
    public ByteBuffer block() {
        long bytes = Arrays.stream(columns).mapToLong(Column::blockBytes).sum();
        if (bytes > Integer.MAX_VALUE) {
            throw new ArithmeticException("a row longer than 2 GiB cannot be read");
        }
        if (bytes > block.capacity()) {
            block = buffer((int) Math.min(Integer.MAX_VALUE, bytes + bytes / 4));
        }
        block.clear();
        for (Column column : columns) {
            column.write(block);
        }
        block.flip();
        return block;
    }

    /** Describes {@link #block}: for each column its NULLs, and the bytes of each of its buffers. */
    public int[] layout() {
        return Arrays.stream(columns).flatMapToInt(column -> Arrays.stream(column.layout())).toArray();
    }

    /** Returns the values of the last {@link #start} that do not fit; each is NULL in its column. */
    public Misfit[] misfits() {
        return misfits.toArray(new Misfit[0]);
    }

    private static ByteBuffer buffer(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    }

    /** A value that its column cannot hold exactly. */
    public static final class Misfit {
        /** Position of the column, from 0. */
        public final int column;

        /** Row within the block, from 0. */
        public final int row;

        /** The value as the driver spells it, cut; empty if the driver cannot. */
        public final String value;

        Misfit(int column, int row, String value) {
            this.column = column;
            this.row = row;
            this.value = value;
        }
    }
}
