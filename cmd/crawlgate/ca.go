package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"crawlgate/configs"
	"crawlgate/proxy"
)

func newCACmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ca",
		Short:   "the interception CA that fetchers have to trust",
		Example: "  crawlgate ca path\n  crawlgate ca env --for python",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCAPathCmd(a), newCAShowCmd(a), newCAEnvCmd(a), newCARenewCmd(a), newCAInstallNSSCmd(a))
	return cmd
}

// openOwnCA loads the CA that the configuration names, made if this is the first use.
func (a *app) openOwnCA() (*proxy.CA, *configs.Config, error) {
	cfg, _, err := a.loader(identityFlags{}, nil)()
	if err != nil {
		return nil, nil, err
	}
	ca, err := openCA(cfg)
	if err != nil {
		return nil, nil, &exitError{exitUsage, err}
	}
	return ca, cfg, nil
}

func newCAPathCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "path", Short: "print the file of the CA certificate", Args: noArgs,
		Example: "  crawlgate ca path\n  curl --proxy http://127.0.0.1:3128 --cacert \"$(crawlgate ca path)\" https://example.com/",
		RunE: func(*cobra.Command, []string) error {
			ca, _, err := a.openOwnCA()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, ca.File)
			return err
		},
	}
}

func newCAShowCmd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show", Short: "print the CA's name, dates and hashes", Args: noArgs,
		Example: "  crawlgate ca show\n  crawlgate ca show --json",
		RunE: func(*cobra.Command, []string) error {
			ca, _, err := a.openOwnCA()
			if err != nil {
				return err
			}
			c := ca.Cert
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(map[string]any{"file": ca.File, "subject": c.Subject.String(), "not_before": c.NotBefore.UTC(),
					"not_after": c.NotAfter.UTC(), "sha256": ca.Fingerprint(), "spki": ca.SPKI()})
			}
			fmt.Fprintf(a.stdout, "file     %s\nsubject  %s\nvalid    %s to %s\nsha256   %s\nspki     %s\n", ca.File, c.Subject,
				c.NotBefore.UTC().Format(time.DateOnly), c.NotAfter.UTC().Format(time.DateOnly), ca.Fingerprint(), ca.SPKI())
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// recipes are the lines that point a client at a gate. PROXY, CA, BUNDLE, SPKI, HOST, PORT and UA are replaced. The tests
// run each of them as it is printed.
var recipes = map[string]string{
	"curl": `export http_proxy=PROXY https_proxy=PROXY
export CURL_CA_BUNDLE=BUNDLE
curl https://example.com/`,
	"wget": `export http_proxy=PROXY https_proxy=PROXY
wget --ca-certificate=CA https://example.com/`,
	"python": `export http_proxy=PROXY https_proxy=PROXY
export SSL_CERT_FILE=BUNDLE REQUESTS_CA_BUNDLE=BUNDLE
# urllib, requests and httpx read these; aiohttp: ClientSession(trust_env=True)`,
	"scrapy": `export http_proxy=PROXY https_proxy=PROXY
# the gate reads robots.txt, keeps the pace and retries nothing; these can stand in settings.py too
scrapy runspider spider.py -s ROBOTSTXT_OBEY=False -s DOWNLOAD_DELAY=0 -s CONCURRENT_REQUESTS_PER_DOMAIN=1`,
	"node": `export HTTP_PROXY=PROXY HTTPS_PROXY=PROXY NODE_EXTRA_CA_CERTS=CA NODE_USE_ENV_PROXY=1
# axios reads these by itself, the built-in fetch from Node 24 on; undici, and fetch before that:
# import { setGlobalDispatcher, EnvHttpProxyAgent } from 'undici'; setGlobalDispatcher(new EnvHttpProxyAgent())`,
	"go": `export HTTP_PROXY=PROXY HTTPS_PROXY=PROXY
export SSL_CERT_FILE=BUNDLE`,
	"java": `keytool -importcert -noprompt -alias crawlgate -file CA -keystore crawlgate.p12 -storetype PKCS12 -storepass changeit
export JAVA_TOOL_OPTIONS="-Dhttp.proxyHost=HOST -Dhttp.proxyPort=PORT -Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT -Dhttp.nonProxyHosts= -Djavax.net.ssl.trustStore=$PWD/crawlgate.p12 -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit"`,
	"chromium": `chromium-headless-shell --user-data-dir="$(mktemp -d)" --proxy-server=PROXY --proxy-bypass-list='<-loopback>' \
  --ignore-certificate-errors-spki-list=SPKI --disable-quic --user-agent='UA' \
  --force-webrtc-ip-handling-policy=disable_non_proxied_udp https://example.com/`,
	"firefox": `dir="$(mktemp -d)"  # a profile of its own; certutil is in Debian's libnss3-tools
certutil -N --empty-password -d sql:"$dir"
certutil -A -d sql:"$dir" -n crawlgate -t C,, -i CA
cat > "$dir/user.js" <<'END'
user_pref("network.proxy.type", 1); user_pref("network.proxy.no_proxies_on", "");
user_pref("network.proxy.http", "HOST"); user_pref("network.proxy.http_port", PORT);
user_pref("network.proxy.ssl", "HOST"); user_pref("network.proxy.ssl_port", PORT);
user_pref("network.proxy.allow_hijacking_localhost", true); user_pref("network.trr.mode", 5);
user_pref("media.peerconnection.enabled", false);
user_pref("general.useragent.override", "UA");
// what it would ask by itself
user_pref("services.settings.server", "data:,#remote-settings-dummy/v1"); user_pref("app.normandy.enabled", false);
user_pref("network.captive-portal-service.enabled", false); user_pref("network.connectivity-service.enabled", false);
user_pref("browser.safebrowsing.malware.enabled", false); user_pref("browser.safebrowsing.phishing.enabled", false);
user_pref("browser.safebrowsing.downloads.remote.enabled", false); user_pref("privacy.trackingprotection.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false); user_pref("datareporting.usage.uploadEnabled", false);
user_pref("datareporting.healthreport.uploadEnabled", false); user_pref("toolkit.telemetry.server", "");
user_pref("extensions.update.enabled", false); user_pref("extensions.systemAddon.update.enabled", false);
user_pref("extensions.getAddons.cache.enabled", false); user_pref("media.gmp-manager.updateEnabled", false);
user_pref("browser.region.update.enabled", false); user_pref("browser.region.network.url", ""); user_pref("browser.search.update", false);
user_pref("browser.newtabpage.enabled", false); user_pref("browser.newtabpage.activity-stream.feeds.topsites", false);
user_pref("browser.newtabpage.activity-stream.feeds.section.topstories", false); user_pref("browser.topsites.contile.enabled", false);
user_pref("browser.startup.homepage_override.mstone", "ignore"); user_pref("browser.aboutwelcome.enabled", false);
user_pref("startup.homepage_welcome_url", ""); user_pref("dom.push.connection.enabled", false); user_pref("security.OCSP.enabled", 0);
user_pref("network.prefetch-next", false); user_pref("network.http.speculative-parallel-limit", 0);
END
export MOZ_REMOTE_SETTINGS_DEVTOOLS=1  # services.settings.server counts only with it
firefox-esr --headless --no-remote --profile "$dir" https://example.com/`,
	"playwright": `// chromium.launch, with Debian's Chromium
{executablePath: '/usr/bin/chromium', proxy: {server: 'PROXY'}, args: ['--ignore-certificate-errors-spki-list=SPKI',
  '--proxy-bypass-list=<-loopback>', '--disable-quic', '--user-agent=UA']}`,
	"puppeteer": `// puppeteer.launch, with Debian's Chromium
{executablePath: '/usr/bin/chromium', args: ['--proxy-server=PROXY', '--proxy-bypass-list=<-loopback>',
  '--ignore-certificate-errors-spki-list=SPKI', '--disable-quic', '--user-agent=UA']}`,
	"selenium": `options = webdriver.ChromeOptions()
for arg in ['--proxy-server=PROXY', '--proxy-bypass-list=<-loopback>', '--ignore-certificate-errors-spki-list=SPKI',
            '--disable-quic', '--user-agent=UA']:
    options.add_argument(arg)
options.ignore_local_proxy_environment_variables()  # else it looks for chromedriver through the proxy`,
}

func newCAEnvCmd(a *app) *cobra.Command {
	var tool, proxyURL string
	var tools []string
	for name := range recipes {
		tools = append(tools, name)
	}
	slices.Sort(tools)
	cmd := &cobra.Command{
		Use: "env --for TOOL", Short: "print the lines that point a client at the gate", Args: noArgs,
		Example: "  crawlgate ca env --for python\n  crawlgate ca env --for chromium --proxy http://127.0.0.1:3128",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tool == "" {
				return usage("--for TOOL is needed: one of %s", strings.Join(tools, ", "))
			}
			recipe, ok := recipes[tool]
			if !ok {
				return usage("--for %q is not one of %s", tool, strings.Join(tools, ", "))
			}
			if u, err := url.Parse(proxyURL); proxyURL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Port() == "") {
				return usage("--proxy %q is not a URL like http://127.0.0.1:3128", proxyURL)
			}
			ca, cfg, err := a.openOwnCA()
			if err != nil {
				return err
			}
			if proxyURL == "" {
				proxyURL = "http://" + cfg.Listen
				if c, err := dialControl(cfg.StateDir); err == nil {
					var st status
					if c.get(cmd.Context(), "/status", &st) == nil {
						proxyURL = st.Proxy
					}
				}
			}
			bundle, err := writeBundle(ca.File)
			if err != nil {
				return fail("%w", err)
			}
			ua := "ExampleBot/1.0 (+https://bot.example/about)"
			if len(cfg.Agents) > 0 && cfg.Agents[0].UserAgent != configs.UserAgentPass {
				ua = cfg.Agents[0].UserAgent
			}
			hostport := strings.TrimPrefix(strings.TrimPrefix(proxyURL, "http://"), "https://")
			host, port, _ := strings.Cut(hostport, ":")
			r := strings.NewReplacer("PROXY", proxyURL, "BUNDLE", bundle, "SPKI", ca.SPKI(), "HOST", host, "PORT", port, "UA", ua, "CA", ca.File)
			// Words such as http_proxy and HTTPS_PROXY= hold a placeholder's letters: only whole words are replaced.
			_, err = fmt.Fprintln(a.stdout, replaceWords(recipe, r))
			return err
		},
	}
	cmd.Flags().StringVar(&tool, "for", "", "set up `TOOL`, one of "+strings.Join(tools, ", "))
	cmd.Flags().StringVar(&proxyURL, "proxy", "", "the gate's `URL` (default: the running one's, else as configured)")
	return cmd
}

// replaceWords replaces placeholders that stand as words of their own.
func replaceWords(s string, r *strings.Replacer) string {
	isWord := func(b byte) bool { return b >= 'A' && b <= 'Z' || b == '_' || b >= 'a' && b <= 'z' }
	var out strings.Builder
	for i := 0; i < len(s); {
		if !isWord(s[i]) {
			out.WriteByte(s[i])
			i++
			continue
		}
		j := i
		for j < len(s) && isWord(s[j]) {
			j++
		}
		switch word := s[i:j]; word {
		case "PROXY", "BUNDLE", "SPKI", "HOST", "PORT", "UA", "CA":
			out.WriteString(r.Replace(word))
		default:
			out.WriteString(word)
		}
		i = j
	}
	return out.String()
}

func newCARenewCmd(a *app) *cobra.Command {
	var activate bool
	cmd := &cobra.Command{
		Use: "renew", Short: "make the next CA, and later put it in force", Args: noArgs,
		Long: `Makes the CA that will follow the present one and prints its file, so that fetchers can trust both. Nothing changes for them yet:
bundle.pem holds both from now on. When all of them have taken it, --activate puts it in force, in a running gate too.`,
		Example: "  crawlgate ca renew\n  crawlgate ca renew --activate",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, cfg, err := a.openOwnCA()
			if err != nil && !activate {
				return err
			}
			if cfg == nil {
				if cfg, _, err = a.loader(identityFlags{}, nil)(); err != nil {
					return err
				}
			}
			if cfg.Intercept.CACertFile != "" {
				return usage("intercept.ca_cert_file names the CA, so its files are yours to replace; then SIGHUP")
			}
			dir := filepath.Join(cfg.StateDir, "ca")
			if !activate {
				next, err := proxy.NextCA(dir)
				if err != nil {
					return fail("%w", err)
				}
				if _, err := writeBundle(filepath.Join(dir, "ca.pem")); err != nil {
					return fail("%w", err)
				}
				fmt.Fprintln(a.stdout, next.File)
				fmt.Fprintf(a.stderr, "the next CA is made (sha256 %s); when every fetcher trusts it: crawlgate ca renew --activate\n", next.Fingerprint())
				return nil
			}
			ca, err := proxy.ActivateCA(dir)
			if errors.Is(err, fs.ErrNotExist) {
				return fail("there is no next CA to put in force; crawlgate ca renew makes it")
			}
			if err != nil {
				return fail("%w", err)
			}
			if _, err := writeBundle(ca.File); err != nil {
				return fail("%w", err)
			}
			if c, err := dialControl(cfg.StateDir); err == nil {
				if err := c.do(cmd.Context(), http.MethodPost, "/reload", nil, nil); err != nil {
					return fail("the CA is in place, but the running gate did not take it up: %w", err)
				}
			}
			fmt.Fprintf(a.stdout, "%s\n", ca.File)
			return nil
		},
	}
	cmd.Flags().BoolVar(&activate, "activate", false, "put the next CA in force")
	return cmd
}

func newCAInstallNSSCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "install-nss DIR", Short: "put the CA into an NSS database, as Chromium and Firefox have it", Args: oneArg("DIR"),
		Long: `Adds the CA to the NSS database in DIR, making it when it is not there. Chromium looks in $HOME/.pki/nssdb; give it a HOME of its own rather
than changing a person's. Needs certutil (Debian: libnss3-tools).`,
		Example: "  crawlgate ca install-nss ./crawler-home/.pki/nssdb\n  HOME=$PWD/crawler-home chromium --proxy-server=http://127.0.0.1:3128 ...",
		RunE: func(cmd *cobra.Command, args []string) error {
			ca, _, err := a.openOwnCA()
			if err != nil {
				return err
			}
			certutil, err := exec.LookPath("certutil")
			if err != nil {
				return usage("certutil is not installed (Debian: apt-get install libnss3-tools)")
			}
			if err := os.MkdirAll(args[0], 0o700); err != nil {
				return fail("%w", err)
			}
			db := "sql:" + args[0]
			if _, err := os.Stat(filepath.Join(args[0], "cert9.db")); errors.Is(err, fs.ErrNotExist) {
				if out, err := exec.CommandContext(cmd.Context(), certutil, "-N", "--empty-password", "-d", db).CombinedOutput(); err != nil {
					return fail("certutil: %w: %s", err, out)
				}
			}
			if out, err := exec.CommandContext(cmd.Context(), certutil, "-A", "-d", db, "-n", "crawlgate "+ca.Fingerprint()[:8], "-t", "C,,", "-i", ca.File).CombinedOutput(); err != nil {
				return fail("certutil: %w: %s", err, out)
			}
			fmt.Fprintf(a.stderr, "%s trusts the CA now\n", args[0])
			return nil
		},
	}
}
