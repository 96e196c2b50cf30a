package beamtfrecord;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A long operation on a thread of its own.
 *
 * <p>Python cannot interrupt a call into Java, so the caller waits a little, again and again, and
 * sees Ctrl-C in between.
 */
public final class Task<T> {
    private static final ExecutorService THREADS = Executors.newCachedThreadPool(Task::thread);

    private final Future<T> future;

    private Task(Future<T> future) {
        this.future = future;
    }

    static <T> Task<T> start(Callable<T> work) {
        return new Task<>(THREADS.submit(work));
    }

    private static Thread thread(Runnable work) {
        Thread thread = new Thread(work, "beam_tfrecord");
        thread.setDaemon(true);
        return thread;
    }

    /** Waits up to {@code millis}; returns whether the task has ended by then. */
    public boolean isDoneWithin(long millis) throws InterruptedException {
        try {
            future.get(millis, TimeUnit.MILLISECONDS);
        } catch (TimeoutException cause) {
            return false;
        } catch (ExecutionException cause) {
            // The caller asks for the result next, which throws this.
        }
        return true;
    }

    /** Returns the result of a task that has ended, or throws what it threw. */
    public T result() throws Exception {
        try {
            return future.get();
        } catch (ExecutionException cause) {
            if (cause.getCause() instanceof Exception) {
                throw (Exception) cause.getCause();
            }
            throw cause;
        }
    }
}
