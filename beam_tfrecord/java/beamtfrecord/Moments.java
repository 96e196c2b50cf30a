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
    private static final long MICROS = 1_000_000;
    private static final long NANOS = 1_000_000_000;

    private Moments() {}

    static int days(LocalDate date) {
        // Some drivers answer the first or last day of java.time for minus or plus infinity.
        if (date.equals(LocalDate.MAX) || date.equals(LocalDate.MIN)) {
            throw new ArithmeticException("an infinite date has no number");
        }
        return Math.toIntExact(date.toEpochDay());
    }

    static long micros(LocalDateTime moment) {
        checkFinite(moment);
        if (moment.getNano() % 1000 != 0) {
            throw new ArithmeticException("it is finer than microseconds");
        }
        long seconds = moment.toEpochSecond(ZoneOffset.UTC);
        return Math.addExact(Math.multiplyExact(seconds, MICROS), moment.getNano() / 1000);
    }

    static long nanos(LocalDateTime moment) {
        checkFinite(moment);
        long seconds = moment.toEpochSecond(ZoneOffset.UTC);
        long nanos = moment.getNano();
        // The very first nanoseconds fit although their whole seconds do not.
        if (seconds < 0 && nanos > 0) {
            seconds++;
            nanos -= NANOS;
        }
        return Math.addExact(Math.multiplyExact(seconds, NANOS), nanos);
    }

    private static void checkFinite(LocalDateTime moment) {
        if (moment.equals(LocalDateTime.MAX) || moment.equals(LocalDateTime.MIN)) {
            throw new ArithmeticException("an infinite moment has no number");
        }
    }

    static LocalDateTime utc(OffsetDateTime moment) {
        if (moment.equals(OffsetDateTime.MAX) || moment.equals(OffsetDateTime.MIN)) {
            throw new ArithmeticException("an infinite moment has no number");
        }
        return moment.withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime();
    }

    static long nanosOfDay(LocalTime time, ResultSet row, int index) throws SQLException {
        // PostgreSQL's driver answers the last nanosecond of the day for 24:00:00.
        if (time.equals(LocalTime.MAX) && row.getString(index).startsWith("24")) {
            throw new ArithmeticException("it is no time of day");
        }
        return time.toNanoOfDay();
    }

    static long microsOfDay(LocalTime time, ResultSet row, int index) throws SQLException {
        long nanos = nanosOfDay(time, row, index);
        if (nanos % 1000 != 0) {
            throw new ArithmeticException("it is finer than microseconds");
        }
        return nanos / 1000;
    }

    /**
     * Refuses a zero date, such as 0000-00-00: the drivers of MariaDB and MySQL answer null for it
     * as they do for NULL.
     */
    static void checkNull(ResultSet row, int index) throws SQLException {
        if (row.getString(index) != null) {
            throw new ArithmeticException("it is no date");
        }
    }
}
