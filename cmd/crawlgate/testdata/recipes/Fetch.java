import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;

/** Fetches URLs with HttpURLConnection ("old") or HttpClient ("new"), both as the JVM's options set them up. */
public class Fetch {
    static String quote(String s) {
        if (s == null) return "\"\"";
        return "\"" + s.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"";
    }

    static void say(String url, int status, String reason, String id, String body) {
        System.out.println("{\"url\":" + quote(url) + ",\"status\":" + status + ",\"headers\":{\"crawlgate-reason\":" + quote(reason)
            + ",\"crawlgate-request-id\":" + quote(id) + "},\"body\":" + quote(body) + "}");
    }

    public static void main(String[] args) {
        HttpClient client = HttpClient.newHttpClient();
        for (int i = 1; i < args.length; i++) {
            String url = args[i];
            try {
                if (args[0].equals("old")) {
                    HttpURLConnection c = (HttpURLConnection) new URL(url).openConnection();
                    int status = c.getResponseCode();
                    InputStream in = status < 400 ? c.getInputStream() : c.getErrorStream();
                    say(url, status, c.getHeaderField("Crawlgate-Reason"), c.getHeaderField("Crawlgate-Request-Id"), new String(in.readAllBytes(), StandardCharsets.UTF_8));
                } else {
                    HttpResponse<String> r = client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
                    say(url, r.statusCode(), r.headers().firstValue("Crawlgate-Reason").orElse(null), r.headers().firstValue("Crawlgate-Request-Id").orElse(null), r.body());
                }
            } catch (Exception e) {
                System.out.println("{\"url\":" + quote(url) + ",\"error\":" + quote(e.toString()) + "}");
            }
        }
    }
}
