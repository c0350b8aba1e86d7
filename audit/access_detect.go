package audit

import (
	"bytes"
	"fmt"
	"strings"
)

type formatKind uint8

const (
	formatUnknown formatKind = iota
	formatCLF
	formatW3C
	formatJSON
	formatSquid
	formatALB
	formatNginx
	formatKinds
)

// logFormat is how the lines of an input are written.
type logFormat struct {
	kind  formatKind
	nginx *nginxFormat
}

var formatNames = [formatKinds]string{"unknown", "clf", "w3c", "json", "squid", "alb", "nginx"}

func (f *logFormat) String() string {
	if f == nil {
		return ""
	}
	return formatNames[f.kind]
}

// parseLogFormat reads the name of a format, or the text of an nginx log_format; nil means that each input is looked at.
func parseLogFormat(s string) (*logFormat, error) {
	kinds := map[string]formatKind{"combined": formatCLF, "common": formatCLF, "vhost": formatCLF, "clf": formatCLF, "w3c": formatW3C,
		"json": formatJSON, "crawlgate": formatJSON, "squid": formatSquid, "alb": formatALB}
	if s == "" || s == "auto" {
		return nil, nil
	}
	if k, ok := kinds[s]; ok {
		return &logFormat{kind: k}, nil
	}
	if strings.Contains(s, "$") {
		n, err := parseNginxFormat(s)
		if err != nil {
			return nil, fmt.Errorf("log format: %w", err)
		}
		return &logFormat{kind: formatNginx, nginx: n}, nil
	}
	return nil, fmt.Errorf("log format %q is not one of auto, combined, common, vhost, w3c, json, squid, alb, crawlgate, nor an nginx log_format", s)
}

const detectLines = 20

// detect tells the format by the first lines that are not blank: the one that most of them are in, of equal ones the
// one seen first. It gives nil when there are no such lines.
func (p *lineParser) detect(data []byte) *logFormat {
	var votes, first [formatKinds]int
	var fields *w3cFields
	seen := 0
	for len(data) > 0 && seen < detectLines {
		var line []byte
		line, data = nextLine(data)
		if isBlank(line) {
			continue
		}
		seen++
		k := p.kindOf(line, &fields)
		if votes[k]++; votes[k] == 1 {
			first[k] = seen
		}
	}
	best := formatUnknown
	for k := formatUnknown + 1; k < formatKinds; k++ {
		if votes[k] > 0 && (best == formatUnknown || votes[k] > votes[best] || votes[k] == votes[best] && first[k] < first[best]) {
			best = k
		}
	}
	if seen == 0 {
		return nil
	}
	return &logFormat{kind: best}
}

// kindOf tells which format a line is in: one whose structure it has.
func (p *lineParser) kindOf(line []byte, fields **w3cFields) formatKind {
	switch {
	case bytes.HasPrefix(line, []byte(fieldsDirective)):
		*fields = parseFields(line)
		return formatW3C
	case bytes.HasPrefix(line, []byte("#Version:")), bytes.HasPrefix(line, []byte("#Software:")), bytes.HasPrefix(line, []byte("#Date:")),
		bytes.HasPrefix(line, []byte("#Start-Date:")), bytes.HasPrefix(line, []byte("#Remark:")):
		return formatW3C
	case *fields != nil && p.w3c(line, *fields) != badStructure:
		return formatW3C
	case line[0] == '{' && p.jsonLog(line) != badJSON:
		return formatJSON
	case p.clf(line) != badStructure:
		return formatCLF
	case p.alb(line) != badStructure:
		return formatALB
	case p.squid(line) != badStructure && beginsWithEpoch(line):
		return formatSquid
	}
	return formatUnknown
}

// beginsWithEpoch tells Squid's lines from others of ten words.
func beginsWithEpoch(line []byte) bool {
	first, _ := nextField(trimSpace(line))
	_, ok := epochTime(first)
	return ok
}

// parse parses one line by a format. fields are the columns in force in a W3C log.
func (p *lineParser) parse(line []byte, f *logFormat, fields *w3cFields) reason {
	switch f.kind {
	case formatCLF:
		return p.clf(line)
	case formatW3C:
		return p.w3c(line, fields)
	case formatJSON:
		return p.jsonLog(line)
	case formatSquid:
		return p.squid(line)
	case formatALB:
		return p.alb(line)
	case formatNginx:
		return p.nginx(line, f.nginx)
	default:
		return badFormat
	}
}

// nextLine cuts a line at LF; one CR before it goes too.
func nextLine(data []byte) (line, rest []byte) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		line, rest = data[:i], data[i+1:]
	} else {
		line = data
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest
}

func isBlank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && (c < '\t' || c > '\r') {
			return false
		}
	}
	return true
}
