package packet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/provision/host"
)

// Walk is what became of a packet, and of the answer to it.
type Walk struct {
	Arrived bool     `json:"arrived"` // its receiver has taken it
	Verdict string   `json:"verdict"`
	Reasons []string `json:"reasons,omitempty"` // what may have stopped it
	Hops    []Hop    `json:"hops"`
	Unasked []string `json:"unasked,omitempty"` // machines that could not be asked, and why
}

// Hop is an interface at which a packet was seen.
type Hop struct {
	Node string         `json:"node"`
	Link string         `json:"link"`
	Out  bool           `json:"out"` // it leaves the machine, or goes to a pod of it
	Kind string         `json:"kind"`
	From netip.AddrPort `json:"from"`
	To   netip.AddrPort `json:"to"`
	Note string         `json:"note,omitempty"`
}

// Sent is what became of it where it was sent.
type Sent struct {
	Outcome, Reason string
	Local           netip.AddrPort
}

// Read puts together what machines have seen, and says what follows from it.
func Read(c *Cluster, r *Route, sent Sent, seen []Seen) Walk {
	w := Walk{Hops: []Hop{}}
	for _, s := range seen {
		if s.Error != "" {
			w.Unasked = append(w.Unasked, s.Node+": "+s.Error)
		}
	}
	if n, ok := number(r, sent, seen); ok {
		w.order(r, n, seen)
		w.note(r, seen)
	}
	w.judge(c, r, sent, seen)
	return w
}

// number tells the packet from others that go the same way.
func number(r *Route, sent Sent, seen []Seen) (n uint32, ok bool) {
	fits := []func(Seen, host.Sighting) bool{
		func(s Seen, p host.Sighting) bool {
			return s.Node == r.Sender && p.From == sent.Local
		},
		func(s Seen, p host.Sighting) bool {
			return (s.Node == r.Sender || r.Sender == "") && p.From.Port() == sent.Local.Port() && sent.Local.IsValid()
		},
		func(s Seen, p host.Sighting) bool { return s.Node == r.Sender || r.Sender == "" && p.To == r.Target },
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

// order lists the packet's hops from machine to machine, and behind them those of what came back.
func (w *Walk) order(r *Route, number uint32, seen []Seen) {
	var there, back [][]Hop // a machine each
	for _, s := range seen {
		list := slices.DeleteFunc(slices.Clone(s.Sightings), func(p host.Sighting) bool { return p.Number != number })
		slices.SortStableFunc(list, func(a, b host.Sighting) int { return cmp.Compare(a.At, b.At) })
		var requests, answers []Hop
		for _, p := range list {
			h := Hop{Node: s.Node, Link: p.Link, Out: p.Out, Kind: p.Kind, From: p.From, To: p.To}
			if p.Kind == host.KindRequest {
				requests = append(requests, h)
			} else {
				answers = append(answers, h)
			}
		}
		if len(requests) > 0 {
			there = append(there, requests)
		}
		if len(answers) > 0 {
			back = append(back, answers)
		}
	}
	// The first is who sent it, or where it came in; the next one is where it came in as it left the one before.
	next := func(p []Hop) bool { return p[0].Node == r.Sender || r.Sender == "" && p[0].To == r.Target }
	var nodes []string
	for len(there) > 0 {
		i := max(slices.IndexFunc(there, next), 0)
		w.Hops = append(w.Hops, there[i]...)
		nodes = append(nodes, there[i][0].Node)
		there = slices.Delete(there, i, i+1)
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

// note says at each hop what is known of it.
func (w *Walk) note(r *Route, seen []Seen) {
	for i := range w.Hops {
		h := &w.Hops[i]
		if at := slices.IndexFunc(seen, func(s Seen) bool { return s.Node == h.Node }); at >= 0 {
			h.Note = whose(r, seen[at], h)
		}
		if i == 0 || h.Kind != host.KindRequest || w.Hops[i-1].Kind != host.KindRequest {
			continue
		}
		before := w.Hops[i-1]
		if h.To != before.To {
			h.Note = joined(h.Note, "now to "+endAt(r, h.To))
		}
		if h.From != before.From {
			h.Note = joined(h.Note, "now from "+h.From.Addr().String())
		}
	}
}

// whose says which pod an interface leads to.
func whose(r *Route, s Seen, h *Hop) string {
	if r.Pod != nil && r.Source.IsValid() && h.Node == r.Sender && s.Routes[r.Source.String()] == h.Link {
		return "pod " + key(r.Pod)
	}
	for _, e := range r.Ends {
		if e.Pod != nil && e.Node == h.Node && s.Routes[e.At.Addr().String()] == h.Link {
			if h.To.Addr() == e.At.Addr() || h.From.Addr() == e.At.Addr() {
				return "pod " + key(e.Pod)
			}
		}
	}
	return ""
}

func endAt(r *Route, at netip.AddrPort) string {
	for _, e := range r.Ends {
		if e.At == at && e.Pod != nil {
			return "pod " + key(e.Pod)
		}
	}
	return at.String()
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}

// last is the last hop of a kind.
func (w *Walk) last(kinds ...string) *Hop {
	for i := len(w.Hops) - 1; i >= 0; i-- {
		if slices.Contains(kinds, w.Hops[i].Kind) {
			return &w.Hops[i]
		}
	}
	return nil
}

// end is where the packet was on its way to when it was last seen; nil when it is still on its way to a service's
// address.
func (r *Route) end(h *Hop) *End {
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

// name of an end, as people know it.
func (e *End) name() string {
	if e.Pod != nil {
		return "pod " + key(e.Pod)
	}
	if e.Node != "" {
		return fmt.Sprintf("%s (node %s)", e.At, e.Node)
	}
	return e.At.String()
}
