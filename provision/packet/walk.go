package packet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/provision/host"
)

// Walk is the path of a packet and of its answer.
type Walk struct {
	Arrived        bool     `json:"arrived"` // the receiver has accepted it
	Verdict        string   `json:"verdict"`
	Reasons        []string `json:"reasons,omitempty"` // what may have stopped it
	Hops           []Hop    `json:"hops"`
	MissingReports []string `json:"unasked,omitempty"` // machines without a report, and why
}

// Hop is an interface at which a packet was seen.
type Hop struct {
	Node       string         `json:"node"`
	Link       string         `json:"link"`
	IsOutgoing bool           `json:"out"` // it leaves the machine, or goes to one of its pods
	Kind       string         `json:"kind"`
	From       netip.AddrPort `json:"from"`
	To         netip.AddrPort `json:"to"`
	Note       string         `json:"note,omitempty"`
}

// SendOutcome is the outcome at the sender.
type SendOutcome struct {
	Outcome, Reason string
	Local           netip.AddrPort
}

// Read combines the reports of the machines into a Walk with a verdict.
func Read(c *Cluster, r *Route, sent SendOutcome, seen []NodeReport) Walk {
	w := Walk{Hops: []Hop{}}
	for _, s := range seen {
		if s.Error != "" {
			w.MissingReports = append(w.MissingReports, s.Node+": "+s.Error)
		}
	}
	if n, ok := identify(r, sent, seen); ok {
		w.addHops(r, n, seen)
		w.addNotes(r, seen)
	}
	w.setVerdict(c, r, sent, seen)
	return w
}

// identify returns the number that distinguishes the packet from others between the same ends.
func identify(r *Route, sent SendOutcome, seen []NodeReport) (n uint32, ok bool) {
	fits := []func(NodeReport, host.Sighting) bool{
		func(s NodeReport, p host.Sighting) bool {
			return s.Node == r.Sender && p.From == sent.Local
		},
		func(s NodeReport, p host.Sighting) bool {
			return (s.Node == r.Sender || r.Sender == "") && p.From.Port() == sent.Local.Port() && sent.Local.IsValid()
		},
		func(s NodeReport, p host.Sighting) bool {
			return s.Node == r.Sender || r.Sender == "" && p.To == r.Target
		},
	}
	for _, fits := range fits {
		for _, s := range seen {
			for _, p := range s.Sightings {
				if p.Kind == host.KindRequest && fits(s, p) {
					return p.Number, true
				}
			}
		}
	}
	return 0, false
}

// addHops lists the packet's hops from machine to machine, and then those of the answer.
func (w *Walk) addHops(r *Route, number uint32, seen []NodeReport) {
	var forward, back [][]Hop // one list per machine
	for _, s := range seen {
		list := slices.DeleteFunc(slices.Clone(s.Sightings), func(p host.Sighting) bool { return p.Number != number })
		slices.SortStableFunc(list, func(a, b host.Sighting) int { return cmp.Compare(a.At, b.At) })
		var requests, answers []Hop
		for _, p := range list {
			h := Hop{Node: s.Node, Link: p.Link, IsOutgoing: p.IsOutgoing, Kind: p.Kind, From: p.From, To: p.To}
			if p.Kind == host.KindRequest {
				requests = append(requests, h)
			} else {
				answers = append(answers, h)
			}
		}
		if len(requests) > 0 {
			forward = append(forward, requests)
		}
		if len(answers) > 0 {
			back = append(back, answers)
		}
	}
	// The first machine is the sender, or where the packet came in. The next one is where the packet comes in with the
	// addresses with which it left the previous machine.
	next := func(p []Hop) bool { return p[0].Node == r.Sender || r.Sender == "" && p[0].To == r.Target }
	var nodes []string
	for len(forward) > 0 {
		i := max(slices.IndexFunc(forward, next), 0)
		w.Hops = append(w.Hops, forward[i]...)
		nodes = append(nodes, forward[i][0].Node)
		forward = slices.Delete(forward, i, i+1)
		last := w.Hops[len(w.Hops)-1]
		next = func(p []Hop) bool { return p[0].From == last.From && p[0].To == last.To }
	}
	slices.SortStableFunc(back, func(a, b []Hop) int {
		return cmp.Compare(slices.Index(nodes, b[0].Node), slices.Index(nodes, a[0].Node))
	})
	for _, list := range back {
		w.Hops = append(w.Hops, list...)
	}
}

// addNotes adds to each hop what is known about it.
func (w *Walk) addNotes(r *Route, seen []NodeReport) {
	for i := range w.Hops {
		h := &w.Hops[i]
		if at := slices.IndexFunc(seen, func(s NodeReport) bool { return s.Node == h.Node }); at >= 0 {
			h.Note = podOfLink(r, seen[at], h)
		}
		if i == 0 || h.Kind != host.KindRequest || w.Hops[i-1].Kind != host.KindRequest {
			continue
		}
		before := w.Hops[i-1]
		if h.To != before.To {
			h.Note = joinNonEmpty(h.Note, "now to "+endName(r, h.To))
		}
		if h.From != before.From {
			h.Note = joinNonEmpty(h.Note, "now from "+h.From.Addr().String())
		}
	}
}

// podOfLink returns the pod that an interface leads to.
func podOfLink(r *Route, s NodeReport, h *Hop) string {
	if r.Pod != nil && r.Source.IsValid() && h.Node == r.Sender && s.Routes[r.Source.String()] == h.Link {
		return "pod " + podKey(r.Pod)
	}
	for _, e := range r.Ends {
		if e.Pod != nil && e.Node == h.Node && s.Routes[e.At.Addr().String()] == h.Link {
			if h.To.Addr() == e.At.Addr() || h.From.Addr() == e.At.Addr() {
				return "pod " + podKey(e.Pod)
			}
		}
	}
	return ""
}

func endName(r *Route, at netip.AddrPort) string {
	for _, e := range r.Ends {
		if e.At == at && e.Pod != nil {
			return "pod " + podKey(e.Pod)
		}
	}
	return at.String()
}

func joinNonEmpty(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

// lastHop returns the last hop of one of the kinds, or nil.
func (w *Walk) lastHop(kinds ...string) *Hop {
	for i := len(w.Hops) - 1; i >= 0; i-- {
		if slices.Contains(kinds, w.Hops[i].Kind) {
			return &w.Hops[i]
		}
	}
	return nil
}

// endOfHop returns the place to which the packet was going when it was last seen, or nil if it was still addressed to a
// service.
func (r *Route) endOfHop(h *Hop) *End {
	if h != nil {
		if i := slices.IndexFunc(r.Ends, func(e End) bool { return e.At == h.To }); i >= 0 {
			return &r.Ends[i]
		}
	}
	if r.Service == nil && len(r.Ends) == 1 {
		return &r.Ends[0]
	}
	return nil
}

func podOf(e *End) *corev1.Pod {
	if e == nil {
		return nil
	}
	return e.Pod
}

// name returns the name of an end for users.
func (e *End) name() string {
	if e.Pod != nil {
		return "pod " + podKey(e.Pod)
	}
	if e.Node != "" {
		return fmt.Sprintf("%s (node %s)", e.At, e.Node)
	}
	return e.At.String()
}
