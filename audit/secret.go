package audit

import (
	"math"
	"strings"
)

// longSecret is the length from which letters and digits without order are taken for a key.
const longSecret = 32

// secretValue tells whether a parameter's value (escaped as it came) looks like a credential: a JWT, 32 and more base64 or
// hex characters of high entropy, or a URL or query inside the value that carries one.
func secretValue(raw string) bool {
	if len(raw) < longSecret && !strings.ContainsAny(raw, "%=:@") {
		return false // too short for a key or a JWT, and nothing nested
	}
	// A plus sign is a space in a form and a digit in base64: look at both readings.
	digits := unescape(raw, '+')
	return secretText(digits) || strings.Contains(digits, "+") && secretText(unescape(raw, ' '))
}

func secretText(s string) bool {
	return looksJWT(s) || hasLongSecret(s) || carriesSecret(s)
}

// looksJWT finds three base64url parts of which the first is a JSON object.
func looksJWT(s string) bool {
	for {
		i := strings.Index(s, "eyJ")
		if i < 0 {
			return false
		}
		s = s[i:]
		end := strings.IndexFunc(s, func(r rune) bool { return !isBase64(r) && r != '.' })
		word := s
		if end >= 0 {
			word = s[:end]
		}
		if strings.Count(word, ".") >= 2 {
			return true
		}
		s = s[3:]
	}
}

func isBase64(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '+' || r == '/' || r == '-' || r == '_' || r == '='
}

// hasLongSecret looks at each run of base64 characters.
func hasLongSecret(s string) bool {
	start := 0
	for i := 0; i <= len(s); i++ {
		if i < len(s) && isBase64(rune(s[i])) {
			continue
		}
		if i-start >= longSecret && disordered(s[start:i]) {
			return true
		}
		start = i + 1
	}
	return false
}

// disordered tells keys from words: hex digits of 3 bits each and more, or letters mixed with digits that repeat less than
// text does. Slugs (words with hyphens, no capitals) and paths stay readable.
func disordered(run string) bool {
	var upper, lower, digit, hex, seps int
	var count [256]int
	for i := 0; i < len(run); i++ {
		c := run[i]
		switch {
		case c >= '0' && c <= '9':
			digit++
		case c >= 'a' && c <= 'z':
			lower++
		case c >= 'A' && c <= 'Z':
			upper++
		default:
			seps++
		}
		if unhex(c) >= 0 {
			hex++
		}
		count[c]++
	}
	if count['+'] > 1+len(run)/16 {
		return false // of 64 digits one is a plus sign, of text every sixth sign is a blank
	}
	entropy := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(run))
			entropy -= p * math.Log2(p)
		}
	}
	switch {
	case hex >= longSecret && hex+seps == len(run):
		return entropy >= 3
	case seps == 0 && digit > 0 && lower+upper > 0:
		return entropy >= 3.5
	case seps == 0 && upper > 0 && lower > 0:
		return entropy >= 4.2
	}
	return digit > 0 && upper > 0 && lower > 0 && entropy >= 4
}

// carriesSecret finds user info of a URL, or a parameter with a secret's name, inside a value.
func carriesSecret(s string) bool {
	if i := strings.Index(s, "//"); i >= 0 {
		host := s[i+2:]
		if end := strings.IndexAny(host, "/?#"); end >= 0 {
			host = host[:end]
		}
		if strings.Contains(host, "@") {
			return true
		}
	}
	for _, part := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("?&;# ,{}\"", r) }) {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			name, value, ok = strings.Cut(part, ":")
		}
		if ok && value != "" && !strings.HasPrefix(value, "//") && secretName(name) {
			return true
		}
	}
	return false
}
