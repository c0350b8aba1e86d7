package sign

import (
	"net/http"
	"testing"
)

func TestSignWithNewKey(t *testing.T) {
	dir := t.TempDir()
	agents := []Agent{{Name: "example", SignatureAgent: "https://bot.example.com"}}
	k := Keyring{StateDir: dir, Config: Defaults(), Publish: PublishDefaults(), Agents: agents}
	made, err := k.New("")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Defaults(), dir, agents, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	info, err := s.Sign(Request{Agent: "example", Method: "GET", Authority: "example.com", Path: "/"}, h)
	if err != nil {
		t.Fatal(err)
	}
	if info.State != Signed || info.KeyID != made.ID || info.Expires-info.Created != 60 {
		t.Errorf("info %+v", info)
	}
	r, _ := http.NewRequest("GET", "https://example.com/?a=1;b=2&q=100%", nil)
	r.URL.RawQuery = ""
	r.Header = h
	key, err := loadFolder(Defaults(), keyFolder(dir, "example"))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyWithHTTPSign("sig1", key.active.public, requestFields(Defaults(), FormDictionary), r); err != nil {
		t.Error(err)
	}
}
