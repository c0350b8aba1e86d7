package configs

import (
	"reflect"
	"time"

	"crawlgate/audit"
	"crawlgate/pacing"
	"crawlgate/policy"
	"crawlgate/proxy/guard"
	"crawlgate/sign"
)

// Defaults of the blocks that belong to no leaf.
const (
	defaultListen      = "127.0.0.1:3128"
	defaultAdminListen = "127.0.0.1:3129"
	defaultStateDir    = "~/.local/state/crawlgate"
)

// Defaults is the configuration that no file at all means: loopback, open, one profile, no agent. StateDir still begins
// with ~; Load expands it.
func Defaults() *Config {
	return &Config{
		Listen:     defaultListen,
		Admin:      Admin{Listen: defaultAdminListen, Hosts: []string{}},
		StateDir:   defaultStateDir,
		Open:       true,
		Enforce:    true,
		Agents:     []Agent{},
		Profiles:   []Profile{ProfileDefaults()},
		Clients:    []Client{},
		Egress:     guard.Defaults(),
		Intercept:  Intercept{TunnelHosts: []string{}},
		Robots:     policy.Defaults(),
		Pacing:     pacing.Defaults(),
		Redis:      pacing.RedisDefaults(),
		Sign:       sign.Defaults(),
		Publish:    sign.PublishDefaults(),
		Audit:      audit.Defaults(),
		Revalidate: Revalidate{MaxSize: 1 << 30, FullEvery: 50},
		Server: Server{
			ReadHead:      10 * time.Second,
			Idle:          60 * time.Second,
			UpstreamIdle:  30 * time.Second,
			HeadBytes:     64 << 10,
			StreamIdle:    10 * time.Minute,
			Tunnels:       20_000,
			TunnelsClient: 10_000,
			Grace:         30 * time.Second,
		},
		Page: Page{Addresses: []string{}, Statements: []Statement{}},
	}
}

// ProfileDefaults is what the absent keys of a profile mean, and the one profile of a configuration without any.
func ProfileDefaults() Profile {
	return Profile{
		Name:         "crawl",
		Sign:         SignSites,
		Sites:        SitesListed,
		IdentityLock: 24 * time.Hour,
		On410:        On410Ask,
		Robots:       policy.ProfileDefaults(),
		Pacing:       pacing.ProfileDefaults(),
		Limits: Limits{
			Methods:       []string{"GET", "HEAD"},
			ResponseBody:  64 << 20,
			Redirects:     5,
			Timeout:       30 * time.Second,
			Authorization: "strip",
			WebSocket:     "allow",
			Connections:   6,
			DenyKinds:     []string{"script-navigation", "prefetch", "browser-noise"},
		},
	}
}

// ClientDefaults is what the absent keys of a client mean.
func ClientDefaults() Client {
	return Client{
		Sources: []string{}, Profiles: []string{}, Grants: []string{"redirects", "files"}, DenyHosts: []string{}, Enforce: true,
	}
}

// itemDefaults is the default of list items of a type; nil where absent keys mean the zero value.
func itemDefaults(t reflect.Type) any {
	switch t {
	case reflect.TypeFor[Profile]():
		p := ProfileDefaults()
		p.Name = ""
		return p
	case reflect.TypeFor[Client]():
		return ClientDefaults()
	case reflect.TypeFor[Agent]():
		return Agent{FallbackTokens: []string{}, PublishKeys: []string{}, Purposes: []string{}}
	}
	return nil
}
