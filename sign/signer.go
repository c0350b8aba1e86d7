package sign

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Answers of State and values of Info.State. The proxy has more of them for requests it does not ask to be signed.
const (
	Ready    = "ready"    // the agent signs
	Disabled = "disabled" // the agent has no signature_agent or no key
	Unknown  = "unknown"  // no such agent: its requests can't be signed and must not go out unsigned
	Signed   = "signed"   // this request is signed
)

// Signer signs requests and publishes the keys. Its methods may be called from many goroutines.
type Signer struct {
	stateDir string
	log      *slog.Logger

	reload   sync.Mutex // one Reload at a time
	state    atomic.Pointer[state]
	publish  atomic.Pointer[PublishConfig]
	failures atomic.Uint64
	dirs     directories
}

// state is everything a reload replaces, in one pointer.
type state struct {
	config Config
	forms  siteForms
	agents []*agentState
	byName map[string]*agentState
	before map[string]*agentState // of the state before this one: requests in flight may still be by an agent that is gone
}

// agent finds an agent, nil for one that is neither in this state nor in the one before.
func (st *state) agent(name string) *agentState {
	if a := st.byName[name]; a != nil {
		return a
	}
	return st.before[name]
}

// agentState is one agent, ready to sign or disabled.
type agentState struct {
	name     string
	agentURL string
	why      string // why it is disabled
	keys     keys
	signers  map[string]*formSigner // by form
}

// Open loads and checks the keys of every agent. Agents without signature_agent or key are not an error (unless
// sign.required) but disabled, see State. Errors are SettingErrors joined, each naming the setting.
// log may be nil.
func Open(c Config, stateDir string, agents []Agent, log *slog.Logger) (*Signer, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Signer{stateDir: stateDir, log: log}
	defaults := PublishDefaults()
	s.publish.Store(&defaults)
	st, err := load(c, stateDir, agents)
	if err != nil {
		return nil, err
	}
	s.state.Store(st)
	s.announce(st)
	return s, nil
}

// Reload loads the keys and settings anew: all of them or, when anything is wrong, none, and then the old ones stay.
// Requests in flight keep the key they started with, and those of an agent that is no longer configured are still signed.
func (s *Signer) Reload(c Config, agents []Agent) error {
	commit, err := s.Prepare(c, agents, *s.publish.Load())
	if err != nil {
		return err
	}
	commit()
	return nil
}

// Prepare does all of a reload, publishing included, that can fail; commit then puts it in force. For a reload that
// has more parts than this one: prepare them all, then commit them all. A reload that is not committed leaves no trace.
func (s *Signer) Prepare(c Config, agents []Agent, p PublishConfig) (commit func(), err error) {
	s.reload.Lock()
	defer s.reload.Unlock()
	st, err := load(c, s.stateDir, agents)
	if err = errors.Join(err, settingErrors("publish", p.Validate())); err != nil {
		s.failures.Add(1)
		s.log.Error("signing keys not reloaded, the old ones stay", "error", err)
		return nil, err
	}
	return func() {
		st.before = s.state.Load().byName
		s.state.Store(st)
		s.publish.Store(&p)
		s.announce(st)
	}, nil
}

// ReloadFailures counts the calls of Reload that kept the old keys.
func (s *Signer) ReloadFailures() uint64 { return s.failures.Load() }

// SetPublish sets how the directory is published; until then it is PublishDefaults.
func (s *Signer) SetPublish(p PublishConfig) error {
	if err := settingErrors("publish", p.Validate()); err != nil {
		return err
	}
	s.publish.Store(&p)
	return nil
}

// State tells whether an agent signs: Ready, Disabled or Unknown; why is empty when it does.
func (s *Signer) State(agent string) (state string, why string) {
	a := s.state.Load().agent(agent)
	switch {
	case a == nil:
		return Unknown, "no such agent"
	case a.why != "":
		return Disabled, a.why
	}
	return Ready, ""
}

// ActiveKey is the id of the key that an agent signs with, "" when it is disabled.
func (s *Signer) ActiveKey(agent string) string {
	if a := s.state.Load().byName[agent]; a != nil {
		return a.keys.active.id
	}
	return ""
}

func (s *Signer) announce(st *state) {
	for _, w := range st.config.Warnings() {
		s.log.Warn(w)
	}
	for _, a := range st.agents {
		if a.why != "" {
			s.log.Info("requests of this agent are not signed", "agent", a.name, "why", a.why)
			continue
		}
		s.log.Info("requests are signed", "agent", a.name, "key_id", a.keys.active.id, "signature_agent", a.agentURL)
		for _, k := range a.keys.published {
			if k.private == nil {
				s.log.Warn("published without proof, only the public half is known", "agent", a.name, "key_id", k.id)
			}
		}
	}
}

// load builds a state and reports every problem found.
func load(c Config, stateDir string, agents []Agent) (*state, error) {
	var problems []error
	if err := settingErrors("sign", c.Validate()); err != nil {
		return nil, err
	}
	st := &state{config: c, forms: newSiteForms(c), byName: map[string]*agentState{}}
	owner := map[string]Agent{} // of each key
	ready := 0
	for i, a := range agents {
		as, err := loadAgent(c, stateDir, i, a)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if st.byName[a.Name] != nil {
			problems = append(problems, &SettingError{fmt.Sprintf("agents[%d].name", i), fmt.Errorf("%q is used twice", a.Name)})
			continue
		}
		for _, k := range as.keys.published {
			if other, used := owner[k.id]; used && other.SignatureAgent != a.SignatureAgent {
				problems = append(problems, &SettingError{fmt.Sprintf("agents[%d].key_file", i),
					fmt.Errorf("key %s also belongs to agent %s; each signature_agent needs its own key", k.id, other.Name)})
			}
			owner[k.id] = a
		}
		if as.why == "" {
			ready++
		}
		st.byName[a.Name] = as
		st.agents = append(st.agents, as)
	}
	if c.Required && ready == 0 && len(problems) == 0 {
		problems = append(problems, &SettingError{"sign.required", errors.New("no agent has a signature_agent and a key")})
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return st, nil
}

func loadAgent(c Config, stateDir string, index int, a Agent) (*agentState, error) {
	at := fmt.Sprintf("agents[%d]", index)
	if err := settingErrors(at, a.Validate()); err != nil {
		return nil, err
	}
	as := &agentState{name: a.Name, agentURL: a.SignatureAgent}
	if a.SignatureAgent == "" {
		as.why = "no signature_agent is set"
		return as, nil
	}
	var err error
	if as.keys, err = loadKeys(c, stateDir, index, a); err != nil {
		return nil, err
	}
	if as.keys.empty() {
		if c.Required {
			return nil, &SettingError{"sign.required", fmt.Errorf("agent %s has no key; crawlgate keys new --agent %s makes one", a.Name, a.Name)}
		}
		as.why = "no key; crawlgate keys new --agent " + a.Name + " makes one"
		return as, nil
	}
	as.signers = map[string]*formSigner{}
	for _, form := range []string{FormDictionary, FormString} {
		as.signers[form] = newFormSigner(c, a.SignatureAgent, form, as.keys.active)
	}
	for _, k := range as.keys.published {
		if err := selfCheck(c, a.SignatureAgent, k); err != nil {
			return nil, &SettingError{at, fmt.Errorf("self-check of key %s: %w", k.id, err)}
		}
	}
	return as, nil
}

// Request is what the signature of one request covers. The caller sends exactly these values.
type Request struct {
	Agent     string // name
	Method    string
	Authority string // normalised: lower-case A-label, no trailing dot, port only when not 443
	Path      string // escaped as sent, without query; "" is "/"
}

// Info says what was signed, for the audit record. It holds no secret; the signature value is not in it.
type Info struct {
	State            string // Signed or Disabled
	KeyID            string // RFC 7638 thumbprint
	Label            string
	Components       string // covered components as in Signature-Input, without parentheses
	AgentURL         string
	Created, Expires int64 // Unix seconds
}

// Sign sets Signature-Agent, Signature-Input and Signature on h, replacing whatever stood there under these names. For a
// disabled agent it only removes them. After an error nothing of the three is on h, and the request must not be sent.
func (s *Signer) Sign(r Request, h http.Header) (Info, error) {
	removeOwn(h)
	st := s.state.Load()
	a := st.agent(r.Agent)
	if a == nil {
		return Info{}, fmt.Errorf("sign: no agent %q", r.Agent)
	}
	if a.why != "" {
		return Info{State: Disabled}, nil
	}
	if !isNormalAuthority(r.Authority) {
		return Info{}, fmt.Errorf("sign: authority %q is not normalised", clip(r.Authority, maxAuthority))
	}
	if st.config.Components == ComponentsBound {
		if err := bindable(&r); err != nil {
			return Info{}, err
		}
	}
	f := a.signers[st.forms.form(r.Authority)]
	out := f.sign(r, time.Now())
	values := []string{f.agentField, out.input, out.signature}
	h["Signature-Agent"] = values[0:1:1]
	h["Signature-Input"] = values[1:2:2]
	h["Signature"] = values[2:3:3]
	return Info{State: Signed, KeyID: a.keys.active.id, Label: st.config.Label, Components: f.components,
		AgentURL: a.agentURL, Created: out.created, Expires: out.expires}, nil
}

// bindable checks that method and path are covered as they are sent.
func bindable(r *Request) error {
	if !isToken(r.Method) {
		return fmt.Errorf("sign: method %q is not a token", clip(r.Method, 40))
	}
	if r.Path == "" || r.Path == "/" {
		r.Path = "/" // RFC 9421 2.2.6
		return nil
	}
	path, err := url.PathUnescape(r.Path)
	if err != nil {
		return fmt.Errorf("sign: path: %w", err)
	}
	// Go re-escapes a path that it finds badly escaped; then something else than the path sent would be signed.
	u := url.URL{Path: path, RawPath: r.Path}
	if r.Path[0] != '/' || u.EscapedPath() != r.Path {
		return errors.New("sign: path is not escaped as it would be sent")
	}
	return nil
}

// isToken tells whether s is an RFC 9110 5.6.2 token.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '!', c == '#', c == '$', c == '%', c == '&', c == '\'', c == '*', c == '+', c == '-', c == '.',
			c == '^', c == '_', c == '`', c == '|', c == '~':
		default:
			return false
		}
	}
	return s != ""
}
