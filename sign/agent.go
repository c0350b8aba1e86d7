package sign

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Agent is an identity: what this package needs to know of one entry of `agents:`.
type Agent struct {
	// Name is the agent's name in the configuration, and the name of its folder below state_dir/keys.
	Name string `mapstructure:"name"`
	// SignatureAgent is the value of the Signature-Agent field, sent exactly as it stands; "" leaves requests unsigned.
	SignatureAgent string `mapstructure:"signature_agent"`
	// KeyFile is the active key; "" means the keys in state_dir/keys.
	KeyFile string `mapstructure:"key_file"`
	// PublishKeyFiles are further keys of the directory: private ones with proof, public JWKs without.
	PublishKeyFiles []string `mapstructure:"publish_key_files"`

	// The rest goes into the card.
	Token     string   `mapstructure:"product_token"`
	UserAgent string   `mapstructure:"user_agent"`
	InfoURL   string   `mapstructure:"info_url"`
	Contact   string   `mapstructure:"contact"`
	Purposes  []string `mapstructure:"purposes"`
}

// Validate returns all problems of the fields that concern signing; each has a method Key that names the setting.
func (a Agent) Validate() error {
	var p problems
	if a.SignatureAgent != "" {
		if err := checkAgentURL(a.SignatureAgent); err != nil {
			p.add("signature_agent", "%q: %s", a.SignatureAgent, err)
		}
	}
	if a.KeyFile == "" {
		if len(a.PublishKeyFiles) > 0 {
			p.add("publish_key_files", "needs key_file")
		}
		if a.SignatureAgent != "" && !isFolderName(a.Name) {
			p.add("name", "%q can't name a key folder: letters, digits, . _ - and up to 64 bytes, or set key_file", a.Name)
		}
	}
	return errors.Join(p...)
}

// isFolderName tells whether a name can be a folder of keys without leaving its parent.
func isFolderName(s string) bool {
	if s == "" || len(s) > 64 || s[0] == '.' || s[0] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// keyFolder is where the keys of an agent without key_file live.
func keyFolder(stateDir, agent string) string {
	return filepath.Join(stateDir, "keys", agent)
}

// SettingError is a reason not to start, or not to reload, that one setting causes.
type SettingError struct {
	Setting string // like `agents[0].key_file` or `sign.label`
	Err     error
}

func (e *SettingError) Error() string { return e.Setting + ": " + e.Err.Error() }

func (e *SettingError) Unwrap() error { return e.Err }

// Key is the setting.
func (e *SettingError) Key() string { return e.Setting }

// settingErrors gives the joined errors of a Validate as SettingErrors below prefix.
func settingErrors(prefix string, err error) error {
	if err == nil {
		return nil
	}
	var all []error
	for _, e := range unjoin(err) {
		var k interface{ Key() string }
		if errors.As(e, &k) {
			e = &SettingError{prefix + "." + k.Key(), e}
		} else {
			e = fmt.Errorf("%s: %w", prefix, e)
		}
		all = append(all, e)
	}
	return errors.Join(all...)
}

func unjoin(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the join itself, not what it wraps
		return j.Unwrap()
	}
	return []error{err}
}
