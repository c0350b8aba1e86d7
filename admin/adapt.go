package admin

import (
	"crawlgate/pacing"
)

// LiveHosts takes the keeper's view of its hosts (pacing.Pacer.Hosts) for Live.Hosts.
func LiveHosts(views []pacing.HostView) []LiveHost {
	out := make([]LiveHost, 0, len(views))
	for _, v := range views {
		h := LiveHost{
			Host: v.Host, State: v.State, Gap: max(v.Gap, v.Delay), Level: v.Level,
			InFlight: v.InFlight, Waiting: v.Waiting, NextTurn: v.NextAt, Until: v.HoldUntil,
		}
		if v.OpenUntil.After(h.Until) {
			h.Until = v.OpenUntil
		}
		if v.State == "stopped" {
			h.Cause = "almost every answer was a refusal"
		}
		for _, c := range v.Clients {
			h.Queue = append(h.Queue, QueueEntry{Client: c})
		}
		out = append(out, h)
	}
	return out
}

// Pacing fills in what the keeper counts (pacing.Pacer.Stats).
func (g *Gauges) Pacing(s pacing.Stats) {
	g.TurnsWaiting, g.TurnsInFlight, g.Hosts = s.Waiting, s.InFlight, s.Hosts
	g.Incidents, g.TurnOverrun = s.Incidents, s.Overruns
	g.GapShortfall, g.LeaseLost = s.GapShortfall, s.LeaseLost
	g.StoreErrors, g.StoreRoundTrips = s.StoreErrors, s.StoreRoundTrips
	g.LocalTurns, g.StoreAway = s.LocalTurns, s.StoreAway
}
