// Package sign says who we are on the wire: it signs requests with Web Bot Auth, keeps the keys, publishes them in a
// directory that other parties can fetch, and verifies such signatures.
//
// The wire form is that of draft-ietf-webbotauth-httpsig-protocol-01 over RFC 9421 (HTTP Message Signatures), Ed25519
// only; the older bare-string form of Signature-Agent can be chosen for single sites.
//
//	s, err := sign.Open(sign.Defaults(), stateDir, agents, log)
//	...
//	info, err := s.Sign(sign.Request{Agent: "example", Method: "GET", Authority: "example.com", Path: "/"}, req.Header)
//
// What is signed is the caller's decision; a signature is made as the very last change to a request, after any wait for
// a turn, and never reused. When Sign returns an error the request must not be sent.
//
// [Keyring] holds the life of the keys (new, rotate, retire), [Signer.ServeDirectory] publishes them, [Verifier] judges
// captured requests by stricter rules than RFC 9421 asks for.
package sign
