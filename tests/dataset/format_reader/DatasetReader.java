import java.io.*;
import java.nio.*;
import java.nio.file.*;
import java.util.*;
import java.util.function.Consumer;
import java.util.regex.*;
import java.util.stream.*;
import java.util.zip.*;
import static java.nio.charset.StandardCharsets.*;

/** Reads and checks datasets of TFRecord files with a manifest ({@code beam_tfrecord/1}). */
public final class DatasetReader {
    private static final String USAGE = """
            usage: java DatasetReader.java check DIR | read DIR SPLIT NUMBER... | examples DIR SPLIT
                   | order COUNT SEED EPOCH [CHUNK WINDOW] START STOP
            DIR is a dataset, or the path of its manifest if that has a prefix""";

    public static void main(String[] args) {
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, UTF_8);
        int code = run(args, out, System.err);
        System.exit(out.checkError() ? 1 : code);
    }

    /** Runs a command. Returns its exit code: 0, 1 after a line about damage on {@code err}, 2 after a wrong usage. */
    static int run(String[] args, PrintStream out, PrintStream err) {
        try {
            switch (args[0]) {
                case "check" -> out.println("ok " + Dataset.open(args[1]).check());
                case "examples" -> Dataset.open(args[1]).examples(args[2], e -> out.println(hex(e.payload)));
                case "read" -> {
                    List<Long> numbers = Arrays.stream(args).skip(3).map(Long::valueOf).toList();
                    Map<Long, Example> found = Dataset.open(args[1]).read(args[2], numbers);
                    for (long n : numbers) out.println(hex(found.get(n).payload));
                }
                case "order" -> out.println(order(args));
                default -> throw new IllegalArgumentException();
            }
            return 0;
        } catch (IllegalArgumentException | IndexOutOfBoundsException e) {
            err.println(USAGE);
            return 2;
        } catch (IOException e) {  // if it is no Damage, its message is most often the name of a file
            err.println(e.getMessage() + (e instanceof Damage ? "" : ": at byte 0: " + e.getClass().getSimpleName()));
        }
        return 1;
    }

    private static String order(String[] args) {
        int last = args.length - 1;
        long[] n = Arrays.stream(args).skip(1).mapToLong(Long::parseUnsignedLong).toArray();
        long start = n[last - 2], stop = n[last - 1], chunk = last == 7 ? n[3] : 0, window = last == 7 ? n[4] : 0;
        boolean valid = last == 5 || last == 7 && chunk > 0 && window > 0;
        if (!valid || start < 0 || start > stop || stop > n[0]) throw new IllegalArgumentException();
        Order order = new Order(n[0], n[1], n[2]);
        return LongStream.range(start, stop).mapToObj(p -> "" + order.row(p, chunk, window))
                .collect(Collectors.joining(" "));
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
    private static ByteBuffer littleEndian(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    /** A file that is not what it should be, and where. Offsets in compressed shards are those of the contents. */
    private static final class Damage extends IOException {
        Damage(Path file, long offset, String what) {
            super(file + ": at byte " + offset + ": " + what);
        }
    }

    /** A shard, its number of records, size and hash, and its index or null. */
    private record Shard(Path file, long examples, long bytes, long hash, Path index) {}

    /** A dataset whose manifest has been read and checked. */
    private record Dataset(Path manifest, long content, boolean gzip, Map<Path, Long> sidecars,
                           Map<String, List<Shard>> splits) {
        private static final long CONTENT_SEED = 0x6c5b191a31c5a9fcL;
        private static final Pattern END = Pattern.compile("\"xxh64\": \"([0-9a-f]{16})\"\n}\n\\z");
        static Dataset open(String name) throws IOException {
            Path file = Path.of(name);
            if (Files.isDirectory(file)) file = file.resolve("manifest.json");
            byte[] bytes = Files.readAllBytes(file);
            String chars = new String(bytes, ISO_8859_1);  // a char for each byte
            Matcher end = END.matcher(chars);
            if (!end.find()) throw new Damage(file, bytes.length, "the file does not end with its hash");
            String others = chars.substring(0, end.start(1)) + chars.substring(end.end(1));
            if (Xxh64.of(others.getBytes(ISO_8859_1), 0) != Json.hash(end.group(1)))
                throw new Damage(file, end.start(1), "the file has another hash");
            try {
                Stream<MatchResult> tokens = Json.TOKEN.matcher(new String(bytes, UTF_8)).results();
                return of(file, Json.object(Json.value(tokens.map(MatchResult::group).iterator(), ",")));
            } catch (RuntimeException e) {  // not JSON, or a value is missing or of a wrong type
                throw new Damage(file, 0, "not a manifest that this reader knows: " + e);
            }
        }
        private static Dataset of(Path manifest, Map<String, Object> root) {
            Object format = root.get("format"), compression = root.get("compression");
            boolean gzip = compression.equals("GZIP");
            if (!format.equals("beam_tfrecord/1") || !root.get("requires").equals(List.of())
                    || !gzip && !compression.equals(""))
                throw new IllegalArgumentException(format + ", " + root.get("requires") + ", " + compression);
            Map<Path, Long> sidecars = new LinkedHashMap<>();
            Json.object(root.get("sidecars")).forEach((p, hash) -> sidecars.put(resolve(manifest, p), Json.hash(hash)));
            Map<String, List<Shard>> splits = new LinkedHashMap<>();
            Json.object(root.get("splits")).forEach((name, split) -> {
                splits.put(name, new ArrayList<>());
                for (Object item : (List<?>) Json.object(split).get("shards")) {
                    Map<String, Object> shard = Json.object(item);
                    String path = (String) shard.get("path");
                    Path index = resolve(manifest, "_index/idx-" + path.replaceFirst("\\.tfrecord$", ""));
                    splits.get(name).add(new Shard(resolve(manifest, path), (Long) shard.get("examples"),
                            (Long) shard.get("bytes"), Json.hash(shard.get("xxh64")),
                            !gzip && sidecars.containsKey(index) ? index : null));
                }
            });
            return new Dataset(manifest, Json.hash(root.get("content")), gzip, sidecars, splits);
        }

        /** The file of a path in the manifest, which must not lead out of the directory. */
        private static Path resolve(Path manifest, String path) {
            if (("/" + path + "/").matches("//.*|.*/\\.\\./.*")) throw new IllegalArgumentException("path " + path);
            return manifest.resolveSibling(path);
        }
        private List<Shard> shards(String split) throws Damage {
            if (!splits.containsKey(split)) throw new Damage(manifest, 0, "no split " + split);
            return splits.get(split);
        }

        /** The bytes of a sidecar, after a comparison with its hash. */
        private byte[] sidecar(Path path) throws IOException {
            byte[] bytes = Files.readAllBytes(path);
            if (Xxh64.of(bytes, 0) != sidecars.get(path)) throw new Damage(path, 0, "the file has another hash");
            return bytes;
        }

        /** Checks all files. Returns the number of examples. */
        long check() throws IOException {
            for (Path path : sidecars.keySet()) sidecar(path);
            long[] sums = {0, 0};
            for (Shard shard : splits.values().stream().flatMap(List::stream).toList()) {
                scan(shard, e -> sums[0] += Xxh64.of(e.payload, CONTENT_SEED));
                sums[1] += shard.examples;
                if (shard.index == null) continue;
                Index index = Index.open(shard, sidecar(shard.index));
                for (int entry = 0; entry < index.words.length - 4; entry += 3) index.read(index.words[entry]);
            }
            if (sums[0] != content) throw new Damage(manifest, 0, "the examples do not have the hash 'content'");
            return sums[1];
        }

        /** Visits all examples of a split, those of each shard after a check of all of it. */
        void examples(String split, Consumer<Example> visitor) throws IOException {
            for (Shard shard : shards(split)) {
                scan(shard, e -> { });
                scan(shard, visitor);
            }
        }

        /** Finds examples by their numbers in a split. Shards without an index are read and checked in whole. */
        Map<Long, Example> read(String name, List<Long> numbers) throws IOException {
            Map<Long, Example> found = new HashMap<>();
            long next = 0;  // number of the first example of the next shard
            for (Shard shard : shards(name)) {
                long first = next;
                next += shard.examples;
                Set<Long> here = new TreeSet<>(numbers).subSet(first, next);
                if (!here.isEmpty() && shard.index == null) {
                    scan(shard, e -> {
                        if (here.contains(first + e.number)) found.put(first + e.number, e);
                    });
                } else if (!here.isEmpty()) {
                    Index index = Index.open(shard, sidecar(shard.index));
                    for (long n : here) found.put(n, index.read(n - first));
                }
            }
            if (!found.keySet().containsAll(numbers)) throw new Damage(manifest, 0, name + " has less examples");
            return found;
        }

        /** Visits all records of a shard, and checks CRCs, number, size and, after the last record, the hash. */
        private void scan(Shard shard, Consumer<Example> visitor) throws IOException {
            Xxh64 hash = new Xxh64(0);
            long position = 0, number = 0;
            try (InputStream file = Files.newInputStream(shard.file);
                 InputStream in = gzip ? new GZIPInputStream(file) : new BufferedInputStream(file)) {
                for (; position < shard.bytes; number++) {
                    Example example = Example.read(in, shard.file, number, position, shard.bytes).checked();
                    visitor.accept(example);
                    hash.update(example.head).update(example.payload).update(example.crc);
                    position += 16 + example.payload.length;
                }
                if (in.read() >= 0) throw new Damage(shard.file, position, "more than " + shard.bytes + " bytes");
            } catch (EOFException | ZipException e) {
                throw new Damage(shard.file, position, "gzip, here or later: " + e.getMessage());
            }
            if (number != shard.examples || hash.digest() != shard.hash)
                throw new Damage(shard.file, 0, "the records have another number or hash");
        }
    }

    /** A record, and its number and position in its shard. */
    private record Example(Path file, long number, long position, byte[] head, byte[] payload, byte[] crc) {
        /** Reads a record, which must end at the limit or before it, and checks the CRC of its length. */
        static Example read(InputStream in, Path file, long number, long position, long limit) throws IOException {
            byte[] head = in.readNBytes(12);
            if (head.length < 12 || littleEndian(head).getInt(8) != maskedCrc(head, 8))
                throw new Damage(file, position, "torn record, or wrong CRC of a length");
            long length = littleEndian(head).getLong(0);
            if (length >>> 31 != 0 || length > limit - position - 16)
                throw new Damage(file, position, "the record does not end before byte " + limit);
            byte[] payload = in.readNBytes((int) length), crc = in.readNBytes(4);
            if (crc.length < 4) throw new Damage(file, position, "torn record");
            return new Example(file, number, position, head, payload, crc);
        }

        /** This record, after a check of the CRC of its payload. */
        Example checked() throws Damage {
            if (littleEndian(crc).getInt() == maskedCrc(payload, payload.length)) return this;
            throw new Damage(file, position + 12, "wrong CRC of a payload");
        }
        private static int maskedCrc(byte[] bytes, int length) {
            CRC32C crc = new CRC32C();
            crc.update(bytes, 0, length);
            return Integer.rotateRight((int) crc.getValue(), 15) + 0xa282ead8;
        }
    }

    /** An index: three words for each entry (number, position, check), and then four about the shard. */
    private record Index(Shard shard, long[] words) {
        private static final int CELL = 1024;  // there is an entry for each cell in which a record begins
        /** The index of a shard in the bytes of a sidecar. */
        static Index open(Shard shard, byte[] bytes) throws IOException {
            if (Files.size(shard.file) != shard.bytes)
                throw new Damage(shard.file, shard.bytes, "the file does not end here");
            long magic = littleEndian("BTFRIDX1".getBytes(US_ASCII)).getLong();
            long[] words = new long[bytes.length / 8], end = {shard.examples, shard.bytes, shard.hash, magic};
            littleEndian(bytes).asLongBuffer().get(words);
            int entries = words.length - 4;
            if (bytes.length % 24 != 8 || entries < 3 || !Arrays.equals(words, entries, entries + 4, end, 0, 4))
                throw new Damage(shard.index, Math.max(0, 8L * entries), "not the index of this " + shard.file);
            return new Index(shard, words);
        }

        /** Reads the record with a number in the shard, and the others of its cell. */
        Example read(long number) throws IOException {
            int at = 0, next = words.length - 4;  // the end begins with a number and a position, too
            while (next - at > 3) {
                int middle = (at + next) / 6 * 3;
                if (words[middle] <= number) at = middle;
                else next = middle;
            }
            long from = words[at + 1], limit = words[next + 1], n = words[at], position = from, check = 0;
            if (from < 0 || n > number) throw new Damage(shard.index, 8L * at, "not an entry before " + number);
            Example found = null;
            try (InputStream in = new BufferedInputStream(new FileInputStream(shard.file.toFile()))) {
                in.skipNBytes(from);
                for (; position < limit && position / CELL == from / CELL; n++) {
                    Example example = Example.read(in, shard.file, n, position, limit);
                    if (n == number) found = example;
                    check = check * 0x9e3779b97f4a7c15L + Integer.toUnsignedLong(littleEndian(example.crc).getInt());
                    position += 16 + example.payload.length;
                }
            }
            if (found == null || position != limit || n != words[next] || check != words[at + 2])
                throw new Damage(shard.file, from, "not the records of byte " + 8L * at + " of the index");
            return found.checked();
        }
    }

    /** JSON: objects are Maps, arrays Lists, counts Longs, and all else Strings. Throws RuntimeExceptions. */
    private static final class Json {
        private static final Pattern TOKEN = Pattern.compile("\"(?:[^\"\\\\]|\\\\.)*+\"|[^\\s,:\\[\\]{}\"]+|\\S");
        private static final Pattern ESCAPE = Pattern.compile("\\\\(?:u(....)|.)");
        /** The value that begins with a token, or after it if that is a comma. */
        private static Object value(Iterator<String> tokens, String token) {
            if (token.equals(",")) token = tokens.next();
            List<Object> list = new ArrayList<>();
            if (token.equals("["))
                for (String t; !(t = tokens.next()).equals("]"); ) list.add(value(tokens, t));
            if (token.equals("[")) return list;
            if (token.equals("{")) {
                Map<String, Object> object = new LinkedHashMap<>();
                for (String t; !(t = tokens.next()).equals("}"); ) {
                    String name = (String) value(tokens, t), colon = tokens.next();
                    object.put(name, value(tokens, tokens.next()));
                }
                return object;
            }
            if (!token.startsWith("\"")) return token.matches("[0-9]{1,18}") ? Long.valueOf(token) : token;
            return ESCAPE.matcher(token.substring(1, token.length() - 1)).replaceAll(m -> Matcher.quoteReplacement(
                    m.group(1) != null ? Character.toString(Integer.parseInt(m.group(1), 16))
                            : m.group().equals("\\/") ? "/" : m.group().translateEscapes()));
        }
        @SuppressWarnings("unchecked") static Map<String, Object> object(Object value) {
            return (Map<String, Object>) value;
        }
        static long hash(Object value) {
            return Long.parseUnsignedLong((String) value, 16);
        }
    }

    /** The order of an epoch: the row at each position from 0 to count - 1. */
    private record Order(long count, long seed, long epoch) {
        /** The row at a position, in the windowed order if the window is not 0. */
        long row(long position, long chunk, long window) {
            if (window == 0) return permutation(position, count, key("example"));
            long size = chunk > count / window ? count : chunk * window, chunks = count / chunk;
            long w = position / size, start = w * size;
            long q = start + permutation(position - start, Math.min(size, count - start), key("window", w));
            if (q < chunks * chunk) q = permutation(q / chunk, chunks, key("chunk")) * chunk + q % chunk;
            return Long.remainderUnsigned(q + Long.remainderUnsigned(Xxh64.of(key("rotation"), 0), count), count);
        }
        /** The bytes of seed, epoch, purpose and more numbers. */
        private byte[] key(String purpose, long... more) {
            ByteBuffer key = littleEndian(new byte[16 + purpose.length() + 8 * more.length]);
            key.putLong(seed).putLong(epoch).put(purpose.getBytes(US_ASCII));
            for (long number : more) key.putLong(number);
            return key.array();
        }
        private static long permutation(long value, long n, byte[] key) {
            int bits = Math.max(2, Long.SIZE - Long.numberOfLeadingZeros(n - 1)), lowBits = bits / 2;
            long lowMask = (1L << lowBits) - 1, highMask = (1L << bits - lowBits) - 1;
            do {
                long low = value & lowMask, high = value >>> lowBits;
                for (int i = 0; i < 8; i += 2) {
                    high ^= mix(low + Xxh64.of(key, i)) & highMask;
                    low ^= mix(high + Xxh64.of(key, i + 1)) & lowMask;
                }
                value = high << lowBits | low;
            } while (value >= n);
            return value;
        }
        private static long mix(long z) {
            z = (z ^ z >>> 30) * 0xbf58476d1ce4e5b9L;
            z = (z ^ z >>> 27) * 0x94d049bb133111ebL;
            return z ^ z >>> 31;
        }
    }

    /** The hash XXH64 of bytes that come in pieces. */
    private static final class Xxh64 {
        private static final long P1 = 0x9E3779B185EBCA87L, P2 = 0xC2B2AE3D27D4EB4FL, P3 = 0x165667B19E3779F9L,
                P4 = 0x85EBCA77C2B2AE63L, P5 = 0x27D4EB2F165667C5L;
        private final long seed;
        private final long[] lanes;
        private final ByteBuffer rest = littleEndian(new byte[32]);  // the bytes that are not yet in the lanes
        private long total;
        Xxh64(long seed) {
            this.seed = seed;
            lanes = new long[] {seed + P1 + P2, seed + P2, seed, seed - P1};
        }
        static long of(byte[] bytes, long seed) {
            return new Xxh64(seed).update(bytes).digest();
        }
        Xxh64 update(byte[] bytes) {
            total += bytes.length;
            for (int from = 0, n; from < bytes.length; from += n) {
                n = Math.min(rest.remaining(), bytes.length - from);
                rest.put(bytes, from, n);
                if (rest.hasRemaining()) break;
                rest.clear();
                for (int i = 0; i < 4; i++) lanes[i] = round(lanes[i], rest.getLong(8 * i));
            }
            return this;
        }
        /** The hash, after which there are no more bytes. */
        long digest() {
            long hash = seed + P5;
            if (total >= 32) {
                hash = Long.rotateLeft(lanes[0], 1) + Long.rotateLeft(lanes[1], 7) + Long.rotateLeft(lanes[2], 12)
                        + Long.rotateLeft(lanes[3], 18);
                for (long lane : lanes) hash = (hash ^ round(0, lane)) * P1 + P4;
            }
            hash += total;
            rest.flip();
            while (rest.remaining() >= 8) hash = Long.rotateLeft(hash ^ round(0, rest.getLong()), 27) * P1 + P4;
            if (rest.remaining() >= 4)
                hash = Long.rotateLeft(hash ^ Integer.toUnsignedLong(rest.getInt()) * P1, 23) * P2 + P3;
            while (rest.hasRemaining()) hash = Long.rotateLeft(hash ^ (rest.get() & 0xff) * P5, 11) * P1;
            hash = (hash ^ hash >>> 33) * P2;
            hash = (hash ^ hash >>> 29) * P3;
            return hash ^ hash >>> 32;
        }
        private static long round(long lane, long value) {
            return Long.rotateLeft(lane + value * P2, 31) * P1;
        }
    }
}
