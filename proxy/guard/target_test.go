package guard

import (
	"strings"
	"testing"
)

// TestParseURL: the normalised URL, path and query as they were sent.
func TestParseURL(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"http://example.com", "http://example.com/"},
		{"http://example.com?x=1", "http://example.com/?x=1"},
		{"http://example.com/?", "http://example.com/?"},
		{"HTTPS://EXAMPLE.com.:443/A", "https://example.com/A"},
		{"https://example.com:80/", "https://example.com:80/"},
		{"http://example.com:443/", "http://example.com:443/"},
		{"http://[2606:4700:0:0::6810:84E5]:8080/", "http://[2606:4700::6810:84e5]:8080/"},
		{"http://[::ffff:93.184.215.14]:80/", "http://93.184.215.14/"},
		{"http://example.com/a%2Fb%2fc/../d//e", "http://example.com/a%2Fb%2fc/../d//e"},
		{"http://example.com/%0d%0aX:1", "http://example.com/%0d%0aX:1"},
		{"http://example.com/a%2Fb|c\\d\"<>^`{}", "http://example.com/a%2Fb%7Cc%5Cd%22%3C%3E%5E%60%7B%7D"},
		{"http://example.com/b\xc3\xbccher%2F1", "http://example.com/b%C3%BCcher%2F1"},
		{"http://example.com//evil.example/x", "http://example.com//evil.example/x"},
		{"http://example.com/a?q=%zz|\xfc&u=http://x@y/", "http://example.com/a?q=%zz|\xfc&u=http://x@y/"},
		{"http://example.com/a:b@c;d=e,f!$&'()*+", "http://example.com/a:b@c;d=e,f!$&'()*+"},
		{"http://example.com/*", "http://example.com/*"},
		{"http://example.com/%", "http://example.com/%25"},
		{"http://example.com/100%", "http://example.com/100%25"},
		{"http://example.com/%4", "http://example.com/%254"},
		{"http://example.com/%zz?%zz", "http://example.com/%25zz?%zz"},
		{"http://example.com/a%%41%4%2f|", "http://example.com/a%25%41%254%2f%7C"},
	} {
		u, _, _, err := ParseURL(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if got := u.String(); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
		again, _, _, err := ParseURL(u.String())
		if err != nil || again.String() != u.String() {
			t.Errorf("%q: not stable: %v, %v", c.in, again, err)
		}
	}
	for _, c := range []struct{ in, want string }{
		{"", classRequest},
		{"example.com", classNotProxy},
		{"://example.com/", classNotProxy},
		{"1http://example.com/", classNotProxy},
		{"example.com:443", classScheme},
		{"http:", classRequest},
		{"http://", classMalformed},
		{"http://?x", classMalformed},
		{"http://example.com/a b", classRequest},
		{"http://example.com/\x00", classRequest},
		{"http://example.com/\x7f", classRequest},
		{"http://a@b@example.com/", classUserinfo},
		{"http://\xff@example.com/", classMalformed},
		{"http://[::1]:80:80/", classMalformed},
		{"http://::1/", classMalformed},
	} {
		if _, _, _, err := ParseURL(c.in); classOf(err) != c.want {
			t.Errorf("%q: class %s, want %s", c.in, classOf(err), c.want)
		}
	}
}

// TestStray: in the path, and nowhere else.
func TestStray(t *testing.T) {
	for _, c := range []struct{ in, want, raw string }{
		{"/a", "/a", ""},
		{"/100%25", "/100%25", ""},
		{"/100%?a=%", "/100%25?a=%", "/100%?a=%"},
		{"/?a=%", "/?a=%", ""},
		{"/a#%", "/a#%", ""},
		{"/%zz/http://x/%", "/%25zz/http://x/%25", "/%zz/http://x/%"},
		{"http://h/%4", "http://h/%254", "/%4"},
		{"http://h%zz/", "http://h%zz/", ""},
		{"http://h%zz", "http://h%zz", ""},
		{"//h%zz/%", "//h%zz/%25", "//h%zz/%"}, // a reference to another host, and a path
		{"%", "%25", "%"},
		{"", "", ""},
	} {
		if got := EscapeStray(c.in); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
		if got := StrayTarget(c.in); got != c.raw {
			t.Errorf("%q: raw %q, want %q", c.in, got, c.raw)
		}
	}
	for in, want := range map[string]string{"//h%zz/%?%": "//h%25zz/%25?%", "/%41": "/%41", "*": "*", "/a?b://c/%": "/a?b://c/%"} {
		if got := EscapeStrayTarget(in); got != want {
			t.Errorf("target %q: %q, want %q", in, got, want)
		}
	}
}

// TestParseHostField: the Host field inside a tunnel (hosts.json M013, M017,
// M018 at the level of spelling).
func TestParseHostField(t *testing.T) {
	for _, c := range []struct {
		in   string
		want string // key or class
	}{
		{"a.example", "a.example:443"},
		{"A.EXAMPLE.", "a.example:443"},
		{"a.example:", "a.example:443"},
		{"a.example:80", "a.example:80"},
		{"[::1]", "[::1]:443"},
		{"a.example@127.0.0.1", classMalformed},
		{"a.example/x", classMalformed},
		{"a.example?x", classMalformed},
		{"", classMalformed},
		{"a.example:0", classPort},
		{"*.a.example", classMalformed},
	} {
		h, port, err := ParseAuthority(c.in, 443)
		got := h.Key(port)
		if err != nil {
			got = classOf(err)
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

func TestConfigURL(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"https://b\u00fccher.example/a#b", "https://xn--bcher-kva.example/a"},
		{"https://B\u00dcCHER.example:8443/a", "https://xn--bcher-kva.example:8443/a"},
		{"http://example.com:80", "http://example.com/"},
		{"http://[::1]:80/x", "http://[::1]/x"},
		{"http://example.com/b\u00fccher", "http://example.com/b%C3%BCcher"},
		{"http://me@example.com/", classUserinfo},
		{"http://\uff11\uff12\uff17.0.0.1/", classAmbiguous},
		{"http://*.example.com/", classMalformed},
		{"http://example.com:x/", classMalformed},
		{"example.com", classNotProxy},
	} {
		u, _, _, err := ConfigURL(c.in)
		got := classOf(err)
		if err == nil {
			got = u.String()
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

// TestConfigHostMore goes past the vectors.
func TestConfigHostMore(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"localhost", "localhost"},
		{"*.Example.COM.", "*.example.com"},
		{"*.b\u00fccher.example.com", "*.xn--bcher-kva.example.com"},
		{"a_b.example.com", "a_b.example.com"},
		{"::1", "[::1]"},
		{"[2606:4700:0::1]", "[2606:4700::1]"},
		{"::ffff:10.0.0.1", "10.0.0.1"},
		{"127.0.0.1", "127.0.0.1"},
		{"fe80::1%eth0", ClassZone},
		{"127.1", classAmbiguous},
		{"*.127.0.0.1", classBadGlob},
		{"*.co.uk", classTooWide},
		{"*.github.io", classTooWide},
		{"*.", classMalformed},
		{"**.example.com", classBadGlob},
		{"*.*.example.com", classBadGlob},
		{"example.com:80", classNotAHost},
		{"me@example.com", classNotAHost},
		{"", classMalformed},
		{"a\u3002example\uff0ecom", "a.example.com"},
		{"\u24d0.example.com", "a.example.com"},
		{"b\u00fc_cher.example", classMalformed},
		{"\u00fc..example", classMalformed},
	} {
		h, err := ConfigHost(c.in)
		got := h.Name
		if err != nil {
			got = classOf(err)
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

// TestTextsKeepAddressesBack: what an error says names no resolved address;
// hostile input comes out printable.
func TestTextsKeepAddressesBack(t *testing.T) {
	for _, err := range []error{
		&Denied{Class: ClassPrivate, Host: "wiki.example.net", Port: 443, Addr: addrs("10.1.2.3")[0], Resolved: addrs("10.1.2.3")},
		&Denied{Class: classPort, Host: "wiki.example.net", Port: 22},
		&Denied{Class: classSingleLabel, Host: "wiki", Port: 80},
		&Denied{Class: ClassSelf, Host: "wiki.example.net", Port: 80, Addr: addrs("10.1.2.3")[0]},
		&ResolveError{Class: classDNSError, Host: "wiki.example.net"},
		&ResolveError{Class: classDNSError, Host: "wiki.example.net", NotFound: true},
		&ResolveError{Class: classDNSTimeout, Host: "wiki.example.net"},
		&ResolveError{Class: classDNSNoAddress, Host: "wiki.example.net"},
		&DialError{Class: classConnectFailed, Host: "wiki.example.net", Addr: addrs("10.1.2.3")[0]},
		&DialError{Class: classConnectTimeout, Host: "wiki.example.net", Addr: addrs("10.1.2.3")[0]},
	} {
		text := err.Error()
		if strings.Contains(text, "10.1.2.3") || !strings.HasPrefix(text, "wiki") || strings.HasSuffix(text, ".") {
			t.Errorf("%#v says %q", err, text)
		}
	}
	for _, in := range []string{"a\x1b[2J", "a\r\nb", "\xff", strings.Repeat("\x00", 5000)} {
		_, err := ParseHost(in)
		if err == nil {
			t.Fatalf("%q parsed", in)
		}
		text := err.Error()
		if bad := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }); len(text) > 500 || bad >= 0 {
			t.Errorf("%q says %q", in, text)
		}
	}
}

func TestMessagesHoldNoSecrets(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	refused := func(kind, target string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s %q is taken", kind, target)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s %q: %v", kind, target, err)
		}
	}
	for _, target := range []string{
		"/abs?token=" + secret, "http:/a?" + secret, "http://h/p#" + secret, "http://h%zz/?token=" + secret, "http://h/ p?token=" + secret,
		"http://u:" + secret + "@h/", "http://u:" + secret + "@h/ ", "http://u:" + secret + "@h%41/", "http://u:" + secret + "@h\\x/",
		"u:" + secret + "@h/p", "http:u:" + secret + "@h",
	} {
		_, _, _, err := ParseURL(target)
		refused("target", target, err)
	}
	for _, authority := range []string{"u:" + secret + "@h:443", secret + "@h:443", "u:" + secret + "@h%41:443", "h:443?" + secret, "h:443/?" + secret, "h:443#" + secret} {
		_, _, err := ParseAuthority(authority, 0)
		refused("CONNECT", authority, err)
		_, _, err = ParseAuthority(authority, 80)
		refused("Host", authority, err)
	}
}
