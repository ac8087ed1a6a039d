package flows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// conntrackFlow is one conntrack entry. The netlink library only decodes the ports of TCP and UDP.
type conntrackFlow struct {
	proto       uint8
	destination netip.AddrPort // original destination
	endpoint    netip.AddrPort // endpoint that responds
	tcpState    uint8          // 0 for other protocols
}

// maxAttempts limits how often the table is read again because it changed too much during the listing.
const maxAttempts = 3

// deleteFlows deletes the matching flows of a family.
func deleteFlows(family nft.Family, match func(conntrackFlow) bool) error {
	request := func(operation, flags int) *nl.NetlinkRequest {
		r := nl.NewNetlinkRequest(netlink.ConntrackTable<<8|operation, flags)
		r.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family), Version: nl.NFNETLINK_V0})
		return r
	}
	var failures []error
	for range maxAttempts {
		all, err := request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP).Execute(unix.NETLINK_NETFILTER, 0)
		interrupted := errors.Is(err, nl.ErrDumpInterrupted)
		if err != nil && !interrupted {
			return fmt.Errorf("list flows: %w", err)
		}
		failures = nil
		if interrupted {
			failures = append(failures, fmt.Errorf("list flows: %w", err))
		}
		for _, b := range all {
			if len(b) < nl.SizeofNfgenmsg {
				continue
			}
			attributes := b[nl.SizeofNfgenmsg:]
			if f, ok := decodeFlow(attributes); !ok || !match(f) {
				continue
			}
			// The kernel also compares the flow's ID, which is among the attributes. A new flow with the same addresses
			// therefore stays.
			r := request(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
			r.AddRawData(attributes)
			if _, err := r.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.ENOENT) {
				failures = append(failures, fmt.Errorf("forget a flow: %w", err))
			}
		}
		if len(failures) == 0 {
			break
		}
	}
	return errors.Join(failures...)
}

// decodeFlow decodes a flow from its attributes. It returns false if the flow has no ports.
func decodeFlow(b []byte) (f conntrackFlow, ok bool) {
	var from, to bool
	eachAttribute(b, func(kind uint16, value []byte) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			f.proto, _, f.destination, from = decodeTuple(value)
		case nl.CTA_TUPLE_REPLY:
			_, f.endpoint, _, to = decodeTuple(value)
		case nl.CTA_PROTOINFO:
			eachAttribute(value, func(kind uint16, value []byte) {
				if kind != nl.CTA_PROTOINFO_TCP {
					return
				}
				eachAttribute(value, func(kind uint16, value []byte) {
					if kind == nl.CTA_PROTOINFO_TCP_STATE && len(value) > 0 {
						f.tcpState = value[0]
					}
				})
			})
		}
	})
	return f, from && to
}

// decodeTuple decodes one direction of a flow.
func decodeTuple(b []byte) (proto uint8, source, destination netip.AddrPort, ok bool) {
	var addresses [2]netip.Addr
	var ports [2]uint16
	found := 0
	eachAttribute(b, func(kind uint16, value []byte) {
		switch kind {
		case nl.CTA_TUPLE_IP:
			eachAttribute(value, func(kind uint16, value []byte) {
				a, _ := netip.AddrFromSlice(value)
				switch kind {
				case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
					addresses[0] = a.Unmap()
				case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
					addresses[1] = a.Unmap()
				}
			})
		case nl.CTA_TUPLE_PROTO:
			eachAttribute(value, func(kind uint16, value []byte) {
				switch {
				case kind == nl.CTA_PROTO_NUM && len(value) > 0:
					proto = value[0]
				case kind == nl.CTA_PROTO_SRC_PORT && len(value) == 2:
					ports[0] = binary.BigEndian.Uint16(value)
					found++
				case kind == nl.CTA_PROTO_DST_PORT && len(value) == 2:
					ports[1] = binary.BigEndian.Uint16(value)
					found++
				}
			})
		}
	})
	ok = found == 2 && addresses[0].IsValid() && addresses[1].IsValid()
	return proto, netip.AddrPortFrom(addresses[0], ports[0]), netip.AddrPortFrom(addresses[1], ports[1]), ok
}

// eachAttribute calls do for each attribute in b. It ignores a truncated attribute at the end.
func eachAttribute(b []byte, do func(kind uint16, value []byte)) {
	const header, nested = 4, unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	for len(b) >= header {
		length := int(binary.NativeEndian.Uint16(b))
		if length < header || length > len(b) {
			return
		}
		do(binary.NativeEndian.Uint16(b[2:])&^nested, b[header:length])
		b = b[min((length+3)&^3, len(b)):]
	}
}
