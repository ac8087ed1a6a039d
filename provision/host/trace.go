package host

import (
	"net/netip"
	"time"
)

// Trace is a connection, or a datagram, that a machine watches for on all of its interfaces. One machine also sends it.
type Trace struct {
	Protocol string         `json:"protocol"` // TCP or UDP
	To       netip.AddrPort `json:"to"`       // as the sender writes it
	// that it may be sent to on its way: of the service, its node port, its endpoints
	Ports  []uint16      `json:"ports"`
	Mark   uint32        `json:"mark"`          // what a datagram begins with
	For    time.Duration `json:"for"`           // how long is watched
	Send   bool          `json:"send"`          // this machine sends it
	From   netip.Addr    `json:"from,omitzero"` // of the pod that sends it; the machine itself when it is none
	Routes []netip.Addr  `json:"routes"`        // addresses whose way from this machine is looked up
}

// Protocols of traces.
const (
	TCP = "TCP"
	UDP = "UDP"
)

// Traced is what a machine has seen.
type Traced struct {
	Sightings []Sighting     `json:"sightings"`
	Outcome   string         `json:"outcome,omitempty"` // of sending; empty on machines that did not
	Reason    string         `json:"reason,omitempty"`  // of an OutcomeFailed
	Local     netip.AddrPort `json:"local,omitzero"`    // where it was sent from
	// the interface that leads to an address; empty when none does
	Routes map[string]string `json:"routes"`
}

// Outcomes of sending.
const (
	OutcomeConnected = "connected" // or, of a datagram, answered
	OutcomeRefused   = "refused"
	OutcomeSilent    = "silent"
	OutcomeFailed    = "failed" // it was not sent, or an error came back
)

// Sighting is a packet on an interface. Number is the same wherever the packet is seen, whatever its addresses have
// become: of a connection, the sequence number that it began with.
type Sighting struct {
	At     time.Duration  `json:"at"` // since the machine began to watch
	Link   string         `json:"link"`
	Out    bool           `json:"out"`
	Kind   string         `json:"kind"`
	From   netip.AddrPort `json:"from"`
	To     netip.AddrPort `json:"to"`
	Number uint32         `json:"number"`
}

// Kinds of packets.
const (
	KindRequest     = "request"     // SYN, or the datagram
	KindAccepted    = "accepted"    // SYN and ACK
	KindReset       = "reset"       // RST
	KindUnreachable = "unreachable" // an ICMP error about the request; From is who sent it
)

// MostSightings is how many one machine tells of.
const MostSightings = 512

// MostTraceTime is how long a machine watches at most.
const MostTraceTime = 30 * time.Second
