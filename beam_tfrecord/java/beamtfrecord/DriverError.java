package beamtfrecord;

import java.io.IOException;
import java.net.UnknownHostException;
import java.sql.SQLException;
import java.sql.SQLRecoverableException;
import java.sql.SQLTimeoutException;
import java.sql.SQLTransientConnectionException;
import java.util.List;
import java.util.stream.Stream;

/** What an exception of a driver, with its causes, says about the connection or the server. */
public final class DriverError {
    /**
     * Beginnings of SQLSTATEs after which another attempt may succeed: connection, operator
     * intervention, insufficient resources, rollback; then H2's for a broken or closed connection.
     */
    private static final List<String> LOST = List.of("08", "57P", "53", "40", "90067", "90007", "90098");

    /** SQLSTATEs of a cancelled statement, of the standard and of MariaDB. */
    private static final List<String> CANCELLED = List.of("57014", "70100");

    private DriverError() {}

    /** Returns {@code memory}, {@code host}, {@code cancelled}, {@code lost}, or an empty text. */
    public static String kind(Throwable error) {
        String state = causes(error)
                .filter(SQLException.class::isInstance)
                .map(cause -> String.valueOf(((SQLException) cause).getSQLState()))
                .findFirst()
                .orElse("");
        String message = message(error);
        if (has(error, OutOfMemoryError.class) || message.contains("Java heap space")) {
            return "memory";
        }
        if (has(error, UnknownHostException.class)) {
            return "host";
        }
        boolean isLate = has(error, SQLTimeoutException.class) && !state.startsWith("08");
        if (isLate || CANCELLED.contains(state) || message.contains("Query was cancelled")) {
            return "cancelled";
        }
        boolean isLost = LOST.stream().anyMatch(state::startsWith)
                || has(error, SQLTransientConnectionException.class)
                || has(error, SQLRecoverableException.class)
                || has(error, IOException.class);
        return isLost ? "lost" : "";
    }

    /** Returns the first line of the first message; without any, the name of the exception. */
    public static String message(Throwable error) {
        return causes(error)
                .map(Throwable::getMessage)
                .filter(message -> message != null && !message.isBlank())
                .map(message -> message.strip().lines().findFirst().orElse("").strip())
                .findFirst()
                .orElse(error.getClass().getSimpleName());
    }

    private static boolean has(Throwable error, Class<?> type) {
        return causes(error).anyMatch(type::isInstance);
    }

    private static Stream<Throwable> causes(Throwable error) {
        return Stream.iterate(error, cause -> cause != null, Throwable::getCause).limit(10);
    }
}
