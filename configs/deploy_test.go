package configs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func deployFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sourceMetrics are the metric names that the admin package declares.
func sourceMetrics(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../admin/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source: %v", err)
	}
	var names []string
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(crawlgate_[a-z_]+)"`).FindAllStringSubmatch(string(b), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

var metricName = regexp.MustCompile(`crawlgate_[a-z_]+`)

func checkMetrics(t *testing.T, where, expr string, known []string) {
	t.Helper()
	for _, m := range metricName.FindAllString(expr, -1) {
		if !slices.Contains(known, strings.TrimSuffix(m, "_bucket")) {
			t.Errorf("%s: no metric %s", where, m)
		}
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "{") != strings.Count(expr, "}") {
		t.Errorf("%s: brackets of %s", where, expr)
	}
}

func TestAlerts(t *testing.T) {
	known := sourceMetrics(t)
	var f struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(deployFile(t, "alerts.yaml")))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			if r.Expr == "" || r.Annotations["summary"] == "" || r.Annotations["action"] == "" || r.Labels["severity"] == "" || seen[r.Alert] {
				t.Errorf("alert %+v", r)
			}
			seen[r.Alert] = true
			checkMetrics(t, r.Alert, r.Expr, known)
		}
	}
	for _, want := range []string{"AuditNotWritable", "AuditGap", "ReloadFailed", "KeyExpires", "GapBelowPromise", "AddressDenied"} {
		if !seen["Crawlgate"+want] {
			t.Errorf("no alert Crawlgate%s", want)
		}
	}
}

func TestDashboard(t *testing.T) {
	known := sourceMetrics(t)
	var d struct {
		Title, UID string
		Panels     []struct {
			ID      int
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(deployFile(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	var titles []string
	for i, p := range d.Panels {
		titles = append(titles, p.Title)
		if p.ID != i+1 || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %+v", p)
		}
		for _, x := range p.Targets {
			checkMetrics(t, p.Title, x.Expr, known)
		}
	}
	for _, want := range []string{"Requests", "Refused, by reason", "Wait for a turn", "Back-offs", "Sent, by kind", "Audit queue", "Certificates made"} {
		if !slices.Contains(titles, want) {
			t.Errorf("no panel %s", want)
		}
	}
}

// The configuration inside compose.yaml loads as the container would load it, and the browser has one way out.
func TestCompose(t *testing.T) {
	var f struct {
		Services map[string]struct {
			Networks    []string
			Volumes     []any
			ReadOnly    bool `yaml:"read_only"`
			Environment map[string]string
			DependsOn   map[string]map[string]string `yaml:"depends_on"`
		}
		Networks map[string]struct {
			Internal bool
			IPAM     struct {
				Config []struct{ Subnet string }
			}
		}
		Configs map[string]struct{ Content string }
	}
	if err := yaml.Unmarshal([]byte(deployFile(t, "compose.yaml")), &f); err != nil {
		t.Fatal(err)
	}
	c, src := mustLoad(t, f.Configs["crawlgate.yaml"].Content, env("CRAWLGATE_LISTEN=:3128", "CRAWLGATE_STATE_DIR=/var/lib/crawlgate"))
	for _, w := range src.Warnings {
		if !strings.Contains(w.Text, "server.tls is not set") { // the network is the compose file's own
			t.Errorf("warning %s", w)
		}
	}
	inside := f.Networks["inside"]
	if !inside.Internal || len(c.Clients) != 1 || !slices.Equal(c.Clients[0].Sources, []string{inside.IPAM.Config[0].Subnet}) {
		t.Errorf("network %+v, clients %+v", inside, c.Clients)
	}
	gate, browser := f.Services["gate"], f.Services["browser"]
	if !slices.Equal(browser.Networks, []string{"inside"}) || !slices.Contains(gate.Networks, "outside") || !gate.ReadOnly {
		t.Errorf("gate %+v\nbrowser %+v", gate, browser)
	}
	if v, ok := browser.Volumes[0].(map[string]any); !ok || v["read_only"] != true || v["target"] != browser.Environment["CURL_CA_BUNDLE"] {
		t.Errorf("browser's volumes %v", browser.Volumes)
	}
	for _, k := range []string{"http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"} {
		if browser.Environment[k] != "http://gate:3128" {
			t.Errorf("%s is %q", k, browser.Environment[k])
		}
	}
	if browser.DependsOn["gate"]["condition"] != "service_healthy" {
		t.Errorf("depends_on %v", browser.DependsOn)
	}
}

func TestUnit(t *testing.T) {
	text := deployFile(t, "crawlgate.service")
	for _, want := range []string{"Type=notify", "DynamicUser=yes", "StateDirectory=crawlgate", "LogsDirectory=crawlgate", "LoadCredential=admin.token:", "ProtectSystem=strict",
		"NoNewPrivileges=yes", "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "ExecReload=/bin/kill -HUP $MAINPID"} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %s", want)
		}
	}
	// Its variables are keys.
	keys := map[string]bool{}
	settable(configShape(), func(path string, _ *shape) { keys[envName(path)] = true })
	for _, m := range regexp.MustCompile(`CRAWLGATE_[A-Z_]+`).FindAllString(text+deployFile(t, "Dockerfile"), -1) {
		if !keys[m] {
			t.Errorf("no key for %s", m)
		}
	}
	if tool, err := exec.LookPath("systemd-analyze"); err == nil {
		// Exit status and words depend on the machine (the binary is not installed here); a wrong directive is named.
		out, _ := exec.CommandContext(t.Context(), tool, "verify", "deploy/crawlgate.service").CombinedOutput()
		if regexp.MustCompile(`Unknown|Failed to parse|Invalid`).Match(out) {
			t.Errorf("systemd-analyze:\n%s", out)
		}
	}
}

func TestDockerfile(t *testing.T) {
	text := deployFile(t, "Dockerfile")
	for _, want := range []string{"CGO_ENABLED=0", "USER 65532:65532", "VOLUME /var/lib/crawlgate", `"serve", "--probe"`, "distroless/static", "AS build"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	// The compiler is the one of go.mod.
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	v := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	if v == nil || !strings.Contains(text, "FROM golang:"+string(v[1])+" ") {
		t.Errorf("go.mod wants %s", v)
	}
}
