package audit

// Texts is a list of texts. A configuration may also write it as one text: it is a list of that one then, and an empty
// one is the empty list.
type Texts []string

// UnmarshalText reads the form of one text.
func (t *Texts) UnmarshalText(b []byte) error {
	*t = Texts{}
	if len(b) > 0 {
		*t = Texts{string(b)}
	}
	return nil
}
