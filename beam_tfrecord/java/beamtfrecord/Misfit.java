package beamtfrecord;

/** A value that has no exact place in its column. */
public final class Misfit {
    /** Position of the column, from 0. */
    public final int column;

    /** Row within the block, from 0. */
    public final int row;

    /** The value as the driver spells it, cut; empty where the driver cannot. */
    public final String value;

    /** Why it does not fit. */
    public final String reason;

    Misfit(int column, int row, String value, Exception cause) {
        this.column = column;
        this.row = row;
        this.value = value;
        reason = String.valueOf(cause.getMessage());
    }
}
