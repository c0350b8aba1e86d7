package guard

import (
	"fmt"
	"net/netip"
)

// A HostError says that the text of a target or of a configuration entry is
// refused before any address is looked at.
type HostError struct {
	// Class is the finer word of the refusal: host_malformed, target_userinfo,
	// host_ambiguous_ipv4, addr_zone, port_denied (port 0),
	// request_malformed, not_a_proxy_request, scheme_denied,
	// https_needs_connect; for configuration entries also config_too_wide,
	// config_bad_glob, config_not_a_host.
	Class string
	// Text says what is wrong, for people. It may quote the input, with
	// control characters escaped.
	Text string
}

func (e *HostError) Error() string { return e.Text }

// Denied says that a rule forbids the destination. Its text names no resolved
// address; the fields do, for the log.
type Denied struct {
	Class    string       // port_denied, host_special_use, host_single_label or addr_*
	Host     string       // canonical host of the request
	Port     uint16       // port of the request
	Addr     netip.Addr   // the refused address; invalid when the name or the port is refused
	Literal  bool         // the request itself named the address
	Resolved []netip.Addr // the whole answer, when a name was resolved
}

func (e *Denied) Error() string {
	switch e.Class {
	case classPort:
		return fmt.Sprintf("%s: port %d is not open (%s)", e.Host, e.Port, e.Class)
	case classSpecialUse, classSingleLabel:
		return fmt.Sprintf("%s: not a public name (%s)", e.Host, e.Class)
	case ClassSelf:
		return fmt.Sprintf("%s: leads to this gate itself (%s)", e.Host, e.Class)
	}
	return fmt.Sprintf("%s: not a public address (%s)", e.Host, e.Class)
}

// A ResolveError says that a name gave no address to judge.
type ResolveError struct {
	Class    string // dns_error, dns_timeout or dns_no_address
	Host     string // canonical host
	RCode    string // response code of the name server when it is known: NXDOMAIN, SERVFAIL, ...
	NotFound bool   // the name server said that there is no such name or no address
	Err      error  // cause, for the log
}

func (e *ResolveError) Error() string {
	switch {
	case e.Class == classDNSTimeout:
		return fmt.Sprintf("%s: name servers did not answer in time", e.Host)
	case e.Class == classDNSNoAddress:
		return fmt.Sprintf("%s: no address", e.Host)
	case e.NotFound:
		return fmt.Sprintf("%s: no such name", e.Host)
	}
	return fmt.Sprintf("%s: could not be resolved", e.Host)
}

func (e *ResolveError) Unwrap() error { return e.Err }

// A DialError says that no checked address of the host took the connection.
type DialError struct {
	Class string     // connect_failed or connect_timeout
	Host  string     // canonical host
	Addr  netip.Addr // address of the attempt that Err belongs to
	Err   error      // cause, for the log
}

func (e *DialError) Error() string {
	if e.Class == classConnectTimeout {
		return fmt.Sprintf("%s: connecting took too long", e.Host)
	}
	return fmt.Sprintf("%s: could not connect", e.Host)
}

func (e *DialError) Unwrap() error { return e.Err }

// Timeout makes a DialError recognisable as a timeout to net/http.
func (e *DialError) Timeout() bool { return e.Class == classConnectTimeout }

const (
	classPort           = "port_denied"
	classSpecialUse     = "host_special_use"
	classSingleLabel    = "host_single_label"
	classMalformed      = "host_malformed"
	classAmbiguous      = "host_ambiguous_ipv4"
	classUserinfo       = "target_userinfo"
	classRequest        = "request_malformed"
	classNotProxy       = "not_a_proxy_request"
	classScheme         = "scheme_denied"
	classNeedsConnect   = "https_needs_connect"
	classTooWide        = "config_too_wide"
	classBadGlob        = "config_bad_glob"
	classNotAHost       = "config_not_a_host"
	classDNSError       = "dns_error"
	classDNSTimeout     = "dns_timeout"
	classDNSNoAddress   = "dns_no_address"
	classConnectFailed  = "connect_failed"
	classConnectTimeout = "connect_timeout"
)
