// Package admin is what the gate says about itself: a live page, health,
// metrics, a JSON API, the CA certificate, the proxy auto-config file and the
// files the operator publishes about the crawler.
//
// Everything it tells about traffic is derived from audit events (Server.Observe),
// so the page, the metrics and the log cannot disagree. What is not an event
// (queues, holds, keys, configuration) is asked for through the func fields of
// Options at the moment somebody looks.
//
//	s := admin.New(admin.Options{Addr: ln.Addr, Token: token, Live: live})
//	defer s.Close()
//	cancel := auditLog.Subscribe(s.Observe)
//	defer cancel()
//	srv := &http.Server{Handler: s.Handler()}
//
// The listener may be reached by pages that were just crawled: Chromium sends
// requests for localhost round the proxy, and a name can resolve to 127.0.0.1.
// So a foreign Host and a request from another site are refused, nothing is
// shared across origins, and every change needs the token, on loopback too.
package admin
