package sign

// Resolution is where one generation of verifiers looks for the keys of an agent.
type Resolution struct {
	Generation string // which verifiers, by revisions of draft-ietf-webbotauth-httpsig-protocol
	URL        string // what they fetch
	Served     bool   // whether ServeDirectory answers there, given the host
}

// Resolutions tells which generations of verifiers a Signature-Agent value serves: draft -01 fetches the value itself,
// -00 and the drafts before take its origin and look at the well-known path. What answers there is for the caller to try,
// with a KeyFetcher. It gives nil for a value that can't be used.
func Resolutions(agentURL string, p PublishConfig) []Resolution {
	u, err := parseAgentURL(agentURL)
	if err != nil {
		return nil
	}
	host, err := normalAuthority(u.Host)
	if err != nil {
		return nil
	}
	ours := host == directoryAuthority(agentURL, p) || p.IgnoreHost
	target := requestTarget(u)
	origin := target == "/"
	wellKnown := "https://" + host + DirectoryPath
	r := []Resolution{
		{"verifiers of draft -01", "https://" + host + target, ours && (target == DirectoryPath || origin && p.ServeRoot)},
		{"verifiers that take its origin", wellKnown, ours},
	}
	old := Resolution{"verifiers of draft -00 and before", wellKnown, ours && origin}
	if !origin {
		old.URL = "https://" + host + target + DirectoryPath // those that append the path
	}
	return append(r, old)
}
