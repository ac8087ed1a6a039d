package host

import (
	"net/netip"
	"time"
)

// Trace describes a connection or a datagram for which a machine watches on all its interfaces. One machine also sends
// it.
type Trace struct {
	Protocol string         `json:"protocol"` // TCP or UDP
	To       netip.AddrPort `json:"to"`       // the destination that the sender uses
	// Ports are the destination ports that the packet may have on its way: of the service, its node port, and its
	// endpoints.
	Ports    []uint16      `json:"ports"`
	Mark     uint32        `json:"mark"`          // the first bytes of a datagram
	Duration time.Duration `json:"for"`           // how long to watch
	Send     bool          `json:"send"`          // this machine sends it
	From     netip.Addr    `json:"from,omitzero"` // address of the sending pod; invalid if the machine itself sends
	Routes   []netip.Addr  `json:"routes"`        // addresses whose route from this machine is looked up
}

// Protocols of traces.
const (
	TCP = "TCP"
	UDP = "UDP"
)

// Traced is what a machine has observed.
type Traced struct {
	Sightings []Sighting     `json:"sightings"`
	Outcome   string         `json:"outcome,omitempty"` // result of sending; empty on machines that do not send
	Reason    string         `json:"reason,omitempty"`  // why it is OutcomeFailed
	Local     netip.AddrPort `json:"local,omitzero"`    // the source address that was used
	// Routes maps addresses to the interface that leads to them, empty if none does.
	Routes map[string]string `json:"routes"`
}

// Outcomes of sending.
const (
	OutcomeConnected = "connected" // connected; a datagram was answered
	OutcomeRefused   = "refused"
	OutcomeSilent    = "silent"
	OutcomeFailed    = "failed" // not sent, or an error came back
)

// Sighting is a packet seen on an interface. Number identifies the packet on all interfaces, even after its addresses
// are translated. For a connection it is the initial sequence number.
type Sighting struct {
	At         time.Duration  `json:"at"` // since the machine began to watch
	Link       string         `json:"link"`
	IsOutgoing bool           `json:"out"`
	Kind       string         `json:"kind"`
	From       netip.AddrPort `json:"from"`
	To         netip.AddrPort `json:"to"`
	Number     uint32         `json:"number"`
}

// Kinds of packets.
const (
	KindRequest     = "request"     // SYN, or the datagram
	KindAccepted    = "accepted"    // SYN and ACK
	KindReset       = "reset"       // RST
	KindUnreachable = "unreachable" // an ICMP error about the request; From is its sender
)

// MaxSightings is the maximum number of sightings that a machine reports.
const MaxSightings = 512

// MaxTraceTime is the longest time that a machine watches.
const MaxTraceTime = 30 * time.Second
