package proxy

import "net/http"

// doorField carries what the door saw to serveInner: a letter for the fault ('a': none) and, where a stray percent sign was
// written as %25, path and query as the fetcher wrote them. A fetcher's own is dropped.
const (
	doorField       = "crawlgate-door"
	doorFieldInside = "Crawlgate-Door"
)

// What can be wrong with a request's fields.
const (
	faultNone = iota
	faultConnection
	faultScheme
	faultPath
	faultPseudo
	faultName
	faultValue
	faultUserinfo
	faultTooLarge
)

type h2Fault struct {
	no     *malformed
	detail string
}

var h2Faults = [...]h2Fault{
	faultNone: {},
	faultConnection: {&malformed{http.StatusBadRequest, "request_malformed"},
		"HTTP/2 has no Connection, Keep-Alive, Proxy-Connection, Transfer-Encoding or Upgrade field, and TE may only be trailers. Send the request without them."},
	faultScheme: {&malformed{http.StatusBadRequest, "request_malformed"}, "The request's :scheme is not https, which this tunnel is. Send https, or plain HTTP in a tunnel of its own."},
	faultPath:   {&malformed{http.StatusBadRequest, "request_malformed"}, "The request's :path does not begin with a slash, or holds white space or control characters. Send the path of the URL, percent-encoded."},
	faultPseudo: {&malformed{http.StatusBadRequest, "request_malformed"},
		"The request's pseudo fields are not one each of :method, :scheme and :path, and no more than one :authority, before all other fields. Send them so."},
	faultName:     {&malformed{http.StatusBadRequest, "request_malformed"}, "A field's name is no token in lower case. Send another."},
	faultValue:    {&malformed{http.StatusBadRequest, "request_malformed"}, "A field's value holds control characters. Send another."},
	faultUserinfo: {&malformed{http.StatusBadRequest, "target_userinfo"}, "The request's :authority holds a user name or password. Send the host alone."},
	faultTooLarge: {&malformed{http.StatusRequestHeaderFieldsTooLarge, "header_too_large"}, malformedDetails["header_too_large"]},
}

// detail is what to tell the fetcher.
func (no *malformed) detail() string {
	for _, f := range h2Faults {
		if f.no == no {
			return f.detail
		}
	}
	return malformedDetails[no.class]
}

// readDoor takes the door's field out of the request.
func (in *inbound) readDoor() {
	v := in.r.Header[doorFieldInside]
	if v == nil {
		return
	}
	delete(in.r.Header, doorFieldInside)
	if i := int(v[0][0] - 'a'); i < len(h2Faults) {
		in.fault = h2Faults[i].no
	}
	in.raw = v[0][1:]
}
