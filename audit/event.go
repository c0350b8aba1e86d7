package audit

import (
	"net/netip"
	"net/url"
	"time"
)

// Schema names the form of an event. A change that alters the meaning of a field raises the number.
const Schema = "crawlgate.audit.event/1"

// Types of events.
const (
	TypeRequest    = "request"    // one for each request of a client, at its end
	TypeRobots     = "robots"     // one for each robots.txt fetch of the gate
	TypeIntent     = "intent"     // before the first byte goes out, with sync: intent
	TypeTunnel     = "tunnel"     // a CONNECT that was not opened, at its close
	TypeConfig     = "config"     // a configuration came into force
	TypeStart      = "start"      // the log was opened
	TypeStop       = "stop"       // the log was closed
	TypeGap        = "gap"        // events were lost, or the file was tampered with under the writer
	TypeCheckpoint = "checkpoint" // a signed head of the chain
)

// Decisions.
const (
	Forwarded = "forwarded" // an answer of the site was passed on
	Refused   = "refused"   // a rule said no; nothing was sent
	Cancelled = "cancelled" // the client left before it was its turn
	Failed    = "failed"    // sent or tried, but there was no answer
)

// Words of Event.Revalidation, where an answer to the request was kept.
const (
	AskedWhether = "asked"     // the site was asked whether it still holds, and sent another
	Unchanged    = "unchanged" // the site said so (304), and the client got the kept one
	Spared       = "lastmod"   // the site's sitemap said so, and the client got the kept one without the site being asked
	AskedInFull  = "full"      // the site was asked in full, since its 304s are checked now and then
)

// Event is one line of the log. The zero value is usable: an empty Type is a request, an empty ID gets one, a zero Time is
// now. Strings are cut when the line would pass [MaxLine], and Cut then names them. After [Log.Record] the event belongs to
// the log and its subscribers: nobody changes it any more.
type Event struct {
	Schema string    `json:"schema"` // set by Record
	Type   string    `json:"type"`
	Seq    uint64    `json:"seq"` // set by Record: 1 for the first event of a chain, then one more each
	ID     string    `json:"id"`  // also sent as Crawlgate-Request-Id
	Time   time.Time `json:"time"`

	QueuedMS   int64 `json:"queued_ms"`    // milliseconds from arrival until it was sent, refused or given up
	TurnWaitMS int64 `json:"turn_wait_ms"` // milliseconds waited for the turn
	UpstreamMS int64 `json:"upstream_ms"`  // milliseconds from the first byte sent to the answer's end
	TotalMS    int64 `json:"total_ms"`     // milliseconds from arrival to the end

	Client  Client `json:"client"`
	Agent   string `json:"agent"`
	Profile string `json:"profile"`
	Job     string `json:"job"`
	Kind    string `json:"kind"`

	Method      string      `json:"method"`
	URL         RedactedURL `json:"url"` // by SetURL
	Host        string      `json:"host"`
	Scheme      string      `json:"scheme"`
	Port        int         `json:"port"`
	URLHash     string      `json:"url_hash"`     // set by Record: HMAC-SHA-256 of the full URL under the local key
	QueryMasked bool        `json:"query_masked"` // set by Record: a value of the query was masked
	Intercepted bool        `json:"intercepted"`  // the client's TLS was opened

	Decision  string `json:"decision"`
	Reason    string `json:"reason"`     // a code of the one list, or "ok"
	Class     string `json:"class"`      // the finer word
	WouldDeny string `json:"would_deny"` // report only: the code that would have refused it
	Entry     string `json:"entry"`      // the allowlist entry that admitted or refused it
	Grant     string `json:"grant"`      // redirects, files, subresources

	Sent   bool      `json:"sent"`    // a byte of the request went to the site
	SentAt time.Time `json:"sent_at"` // when the first did
	DoneAt time.Time `json:"done_at"` // when the answer ended

	Rule         Rule   `json:"rule"`
	Robots       Robots `json:"robots"`
	PolicySHA256 string `json:"policy_sha256"` // the configuration in force
	DelayOwedMS  int64  `json:"delay_owed_ms"` // milliseconds of gap owed to the host
	DelaySource  string `json:"delay_source"`  // default, crawl-delay, request-rate, backoff

	Upstream  Upstream `json:"upstream"`
	Exception string   `json:"exception"` // the allow_private entry that let the address pass
	Reused    bool     `json:"reused"`    // upstream connection reused: its address was checked when it was opened
	Sig       Sig      `json:"sig"`

	UserAgent       string `json:"user_agent"`        // as sent
	ClientUserAgent string `json:"client_user_agent"` // what the fetcher sent, if it was replaced

	Status   int   `json:"status"`    // of the site, 0 if none
	Answered int   `json:"answered"`  // given to the client, 0 if none
	BytesIn  int64 `json:"bytes_in"`  // body bytes from the site
	BytesOut int64 `json:"bytes_out"` // body bytes to the site

	Revalidation string `json:"revalidation"` // what the store of answers had to do with it
	Kept         bool   `json:"kept"`         // the site's answer was put into the store
	BytesStored  int64  `json:"bytes_stored"` // body bytes that the client got from the store

	ContentType     string      `json:"content_type"`
	RobotsTag       string      `json:"robots_tag"`       // X-Robots-Tag as sent
	Indexing        string      `json:"indexing"`         // as in Crawlgate-Indexing
	Signals         string      `json:"signals"`          // Content-Signal, Content-Usage of the answer
	RetryAfterS     int64       `json:"retry_after_s"`    // seconds
	RateLimit       string      `json:"ratelimit"`        // RateLimit fields as sent
	AcceptSignature bool        `json:"accept_signature"` // the answer asked for a signature
	Location        RedactedURL `json:"location"`         // by SetLocation
	Permanent       bool        `json:"permanent"`        // 301 or 308
	Hops            int         `json:"hops"`             // redirects followed by a robots.txt fetch
	RedirectOf      string      `json:"redirect_of"`      // id of the request whose answer pointed here
	Parent          string      `json:"parent"`           // id of the request this one belongs to or repeats

	Cut []string `json:"cut"` // fields whose value was shortened

	// Of start, stop, config and gap events.
	Version    string   `json:"version,omitempty"`
	PID        int      `json:"pid,omitempty"`
	Note       string   `json:"note,omitempty"`
	Torn       string   `json:"torn,omitempty"`       // file that an unfinished last line was moved to
	TornBytes  int64    `json:"torn_bytes,omitempty"` // its length
	Unfinished []string `json:"unfinished,omitempty"` // ids of intents that never ended
	FromSeq    uint64   `json:"from_seq,omitempty"`   // seq that the first lost event would have had
	Lost       int64    `json:"lost,omitempty"`       // events lost

	Checkpoint Checkpoint `json:"checkpoint,omitzero"`

	Prev string `json:"prev"` // set by Record
	Hash string `json:"hash"` // set by Record

	rawURL      *url.URL
	rawLocation string
}

// Client is who asked.
type Client struct {
	IP   string `json:"ip"` // by Record replaced by a hash with client_ip: hash
	Port int    `json:"port"`
	Name string `json:"name"`
	Auth string `json:"auth"` // basic, mtls, network, none
}

// Rule is the robots.txt rule that decided, also for an allowed request when one matched.
type Rule struct {
	Line  int    `json:"line"`
	Text  string `json:"text"`
	Group string `json:"group"`
}

// Robots is the version of robots.txt that was consulted.
type Robots struct {
	SHA256    string    `json:"sha256"` // lower-case hex of the stored body
	FetchedAt time.Time `json:"fetched_at"`
	Status    int       `json:"status"`
	State     string    `json:"state"` // fresh, stale, none, not_consulted
}

// Upstream is the address connected to, and all that the name gave.
type Upstream struct {
	IP       string   `json:"ip"`
	Port     int      `json:"port"`
	Resolved []string `json:"resolved"`
}

// Sig says how the request was signed, or why not. The signature itself is never recorded: it is a credential until it expires.
type Sig struct {
	State      string `json:"state"`
	KeyID      string `json:"keyid"`
	Label      string `json:"label"`
	Created    int64  `json:"created"` // seconds since 1970
	Expires    int64  `json:"expires"` // seconds since 1970
	Components string `json:"components"`
	Agent      string `json:"agent"`
	Stripped   int    `json:"stripped"` // signature fields of the client that were removed
}

// Checkpoint is a signed head of the chain, and, after old files were deleted, what was removed.
type Checkpoint struct {
	Seq         uint64 `json:"seq"`          // last event covered
	Head        string `json:"head"`         // its hash
	SignedBy    string `json:"signed_by"`    // RFC 7638 thumbprint of the Ed25519 key
	Signature   string `json:"signature"`    // base64url over the text of SignedText
	RemovedFrom uint64 `json:"removed_from"` // first event deleted by retention, 0 if none
	RemovedTo   uint64 `json:"removed_to"`   // last event deleted
	RemovedHead string `json:"removed_head"` // its hash: the prev of the first event that is left
}

// IsZero tells whether there is no checkpoint.
func (c Checkpoint) IsZero() bool { return c == Checkpoint{} }

// SetURL names the request's target: host, scheme and port now, the text (masked as the log is configured) and the hash
// when the event is recorded. u must not change after.
func (e *Event) SetURL(u *url.URL) {
	e.rawURL = u
	if u == nil {
		return
	}
	e.Scheme = u.Scheme
	host, port := splitHost(u.Host)
	e.Host = host
	e.Port = port
	if port == 0 {
		switch u.Scheme {
		case "https", "wss":
			e.Port = 443
		case "http", "ws":
			e.Port = 80
		}
	}
}

// SetLocation takes the Location field of an answer as it was sent, relative or not; it gets the same treatment as the URL.
func (e *Event) SetLocation(location string) { e.rawLocation = location }

// SetClient names the fetcher's address.
func (e *Event) SetClient(a netip.AddrPort) {
	if !a.IsValid() {
		return
	}
	e.Client.IP = a.Addr().Unmap().String()
	e.Client.Port = int(a.Port())
}

// SetUpstream names the address connected to (or refused) and all addresses the name gave.
func (e *Event) SetUpstream(a netip.AddrPort, resolved []netip.Addr) {
	if a.Addr().IsValid() {
		e.Upstream.IP = a.Addr().Unmap().String()
		e.Upstream.Port = int(a.Port())
	}
	e.Upstream.Resolved = nil
	for _, r := range resolved {
		e.Upstream.Resolved = append(e.Upstream.Resolved, r.Unmap().String())
	}
}

// splitHost parts a URL's host from its port; the port is 0 if there is none. IPv6 keeps its brackets.
func splitHost(hostport string) (string, int) {
	for i := len(hostport) - 1; i >= 0; i-- {
		switch c := hostport[i]; {
		case c == ':':
			port := 0
			for _, d := range hostport[i+1:] {
				port = port*10 + int(d-'0')
				if port > 65535 {
					return hostport[:i], 0
				}
			}
			return hostport[:i], port
		case c < '0' || c > '9':
			return hostport, 0
		}
	}
	return hostport, 0
}
