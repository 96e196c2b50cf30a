package beamtfrecord;

import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;

/**
 * Dates and times as numbers, exactly or not at all.
 *
 * <p>The getters of {@code java.sql} use the Julian calendar before 1582 and the zone of the JVM;
 * those of {@code java.time}, the only ones used here, use neither.
 */
final class Moments {
    static final int MICROS = 1_000_000;
    static final int NANOS = 1_000_000_000;

    private Moments() {}

    static LocalDate date(ResultSet row, int index) throws SQLException {
        LocalDate date = row.getObject(index, LocalDate.class);
        checkNull(date, row, index);
        return finite(date, LocalDate.MIN, LocalDate.MAX);
    }

    static LocalDateTime timestamp(ResultSet row, int index) throws SQLException {
        LocalDateTime moment = row.getObject(index, LocalDateTime.class);
        checkNull(moment, row, index);
        return finite(moment, LocalDateTime.MIN, LocalDateTime.MAX);
    }

    /** Returns a moment of the time line in UTC. */
    static LocalDateTime instant(ResultSet row, int index) throws SQLException {
        OffsetDateTime moment = row.getObject(index, OffsetDateTime.class);
        checkNull(moment, row, index);
        finite(moment, OffsetDateTime.MIN, OffsetDateTime.MAX);
        return moment == null ? null : moment.withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime();
    }

    static LocalTime time(ResultSet row, int index) throws SQLException {
        LocalTime time = row.getObject(index, LocalTime.class);
        // PostgreSQL's driver answers the last nanosecond of the day for 24:00:00.
        if (LocalTime.MAX.equals(time) && row.getString(index).startsWith("24")) {
            throw new ArithmeticException("it is not a time of day");
        }
        return time;
    }

    /** Refuses the first and last value of a class: some drivers answer them for infinity. */
    private static <T> T finite(T value, T least, T most) {
        if (least.equals(value) || most.equals(value)) {
            throw new ArithmeticException("an infinite moment has no number");
        }
        return value;
    }

    /**
     * Refuses a zero date, such as 0000-00-00: the drivers of MariaDB and MySQL answer null for it
     * as they do for NULL.
     */
    private static void checkNull(Object value, ResultSet row, int index) throws SQLException {
        if (value == null && row.getString(index) != null) {
            throw new ArithmeticException("it is not a date");
        }
    }

    /** Returns the ticks since 1970, of which a second has {@code perSecond}. */
    static long ticks(LocalDateTime moment, int perSecond) {
        long seconds = moment.toEpochSecond(ZoneOffset.UTC);
        long ticks = exactly(moment.getNano(), perSecond);
        // The very first ticks fit although their whole seconds do not.
        if (seconds < 0 && ticks > 0) {
            seconds++;
            ticks -= perSecond;
        }
        return Math.addExact(Math.multiplyExact(seconds, perSecond), ticks);
    }

    /** Returns the ticks since midnight. */
    static long ticks(LocalTime time, int perSecond) {
        return exactly(time.toNanoOfDay(), perSecond);
    }

    private static long exactly(long nanos, int perSecond) {
        int nanosPerTick = NANOS / perSecond;
        if (nanos % nanosPerTick != 0) {
            throw new ArithmeticException("it is finer than microseconds");
        }
        return nanos / nanosPerTick;
    }
}
