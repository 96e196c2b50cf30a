package beamtfrecord;

import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.Driver;
import java.sql.ResultSet;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.ServiceConfigurationError;
import java.util.ServiceLoader;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Connects through the drivers of some jars.
 *
 * <p>Every set of jars has a class loader of its own, so jars can be added while the JVM runs.
 * {@link java.sql.DriverManager} is not used, since it ignores drivers of other class loaders.
 */
public final class Connector {
    private static final Map<List<String>, ClassLoader> LOADERS = new ConcurrentHashMap<>();

    private Connector() {}

    /**
     * Begins to connect; the result is null if no driver knows the URL.
     *
     * @param jars paths of the driver and of what it needs
     * @param driver class of the driver; empty: the first in the jars that knows the URL
     */
    public static Task<Connection> open(
            String[] jars, String driver, String url, Properties properties) {
        ClassLoader loader = LOADERS.computeIfAbsent(Arrays.asList(jars), Connector::loader);
        return Task.start(() -> {
            // Drivers look for their plugins where the thread looks for classes.
            Thread.currentThread().setContextClassLoader(loader);
            return connect(loader, driver, url, properties);
        });
    }

    /** Begins to run a query. */
    public static Task<ResultSet> query(Statement statement, String sql) {
        return Task.start(() -> statement.executeQuery(sql));
    }

    private static Connection connect(
            ClassLoader loader, String name, String url, Properties properties) throws Exception {
        for (Driver driver : drivers(loader, name)) {
            if (driver.acceptsURL(url)) {
                return driver.connect(url, properties);
            }
        }
        return null;
    }

    private static List<Driver> drivers(ClassLoader loader, String name) throws Exception {
        List<Driver> drivers = new ArrayList<>();
        if (!name.isEmpty()) {
            Class<?> type = Class.forName(name, true, loader);
            drivers.add((Driver) type.getDeclaredConstructor().newInstance());
            return drivers;
        }
        Iterator<Driver> found = ServiceLoader.load(Driver.class, loader).iterator();
        while (true) {
            try {
                if (!found.hasNext()) {
                    return drivers;
                }
                drivers.add(found.next());
            } catch (ServiceConfigurationError cause) {
                // A jar may name a driver that lacks something; another may still do.
                continue;
            }
        }
    }

    private static ClassLoader loader(List<String> jars) {
        URL[] urls = jars.stream().map(Connector::url).toArray(URL[]::new);
        return new URLClassLoader(urls, Connector.class.getClassLoader());
    }

    private static URL url(String path) {
        try {
            return Path.of(path).toUri().toURL();
        } catch (MalformedURLException cause) {
            throw new IllegalArgumentException(path, cause);
        }
    }
}
