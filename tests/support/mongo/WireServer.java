import de.bwaldvogel.mongo.MongoBackend;
import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.h2.H2Backend;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.List;

/**
 * A server that speaks MongoDB's wire protocol, for tests. Arguments: READYFILE PORT [H2FILE].
 * With the property keystore (and its password, storepass) it speaks TLS by the key in that file.
 */
public class WireServer {
    public static void main(String[] arguments) throws Exception {
        MongoBackend backend =
            arguments.length > 2 ? new H2Backend(arguments[2]) : new MemoryBackend();
        backend.version(new MongoVersion() {
            // Its own newest version announces wire 8, and pymongo asks for 9 at least.
            @Override public List<Integer> getVersionArray() { return List.of(5, 0, 0); }
            @Override public int getWireVersion() { return 13; }
        });
        MongoServer server = new MongoServer(backend);
        String keystore = System.getProperty("keystore");
        if (keystore != null) {
            char[] password = System.getProperty("storepass").toCharArray();
            KeyStore keys = KeyStore.getInstance(Path.of(keystore).toFile(), password);
            String name = keys.aliases().nextElement();
            server.enableSsl((PrivateKey) keys.getKey(name, password), null,
                (X509Certificate) keys.getCertificate(name));
        }
        server.bind("127.0.0.1", Integer.parseInt(arguments[1]));
        Runtime.getRuntime().addShutdownHook(new Thread(server::shutdown));
        Path ready = Path.of(arguments[0]);
        Path fresh = Path.of(arguments[0] + ".new");
        Files.writeString(fresh, String.valueOf(server.getLocalAddress().getPort()));
        Files.move(fresh, ready, StandardCopyOption.ATOMIC_MOVE);
        while (System.in.read() >= 0) { }  // ends when the parent dies or closes the pipe
        System.exit(0);
    }
}
