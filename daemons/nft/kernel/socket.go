package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/daemons/nft"
)

// socket is a netlink socket to the kernel's packet filter.
type socket struct {
	fd     int
	buffer []byte
}

const (
	// sendBytes is the size of the send buffer. It fits one transaction with all rules of a large cluster.
	sendBytes = 128 << 20
	// receiveBytes is the size of the receive buffer. It fits the responses to one transaction or to a part of a
	// listing.
	receiveBytes = 8 << 20
	// answerTimeout limits the wait for a response. The kernel writes the response before the send call returns.
	answerTimeout = 10 * time.Second
)

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("reach the kernel's packet filter: %w", err)
	}
	timeout := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBytes),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBytes),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("set up the connection to the kernel's packet filter: %w", err)
	}
	return &socket{fd: fd, buffer: make([]byte, 64<<10)}, nil
}

func (s *socket) close() { _ = unix.Close(s.fd) }

func (s *socket) send(b []byte) error {
	if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send to the kernel: %w", err)
	}
	return nil
}

// receive calls do for each message of one response.
func (s *socket) receive(do func(kind uint16, flags uint16, seq uint32, body []byte) error) error {
	n, _, err := unix.Recvfrom(s.fd, s.buffer, 0)
	if err != nil {
		return fmt.Errorf("read the kernel's answer: %w", err)
	}
	for b := s.buffer[:n]; len(b) >= headerSize; {
		length := int(binary.NativeEndian.Uint32(b))
		if length < headerSize || length > len(b) {
			return errors.New("read the kernel's answer: a message without its end")
		}
		kind, flags, seq := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(
			b[6:],
		), binary.NativeEndian.Uint32(b[8:])
		if err := do(kind, flags, seq, b[headerSize:length]); err != nil {
			return err
		}
		b = b[min(len(b), (length+3)&^3):]
	}
	return nil
}

// messageError returns the error in a message of type NLMSG_ERROR, or nil for a confirmation.
func messageError(body []byte) error {
	if len(body) < 4 {
		return errors.New("an unknown error")
	}
	if code := int32(binary.NativeEndian.Uint32(body)); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// commit sends a transaction and waits until the kernel has applied or rejected it as a whole.
func (s *socket) commit(b *batch) error {
	if err := s.send(b.finish()); err != nil {
		return err
	}
	for done := false; !done; {
		err := s.receive(func(kind, _ uint16, seq uint32, body []byte) error {
			if kind != unix.NLMSG_ERROR {
				return nil
			}
			if err := messageError(body); err != nil {
				return fmt.Errorf("%s: %w", b.describe(seq), err)
			}
			done = done || seq == b.last
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// list calls do with the attributes of each object that the request m lists.
func (s *socket) list(m *netlinkMessage, do func(body []byte)) error {
	if err := s.send(m.bytes); err != nil {
		return err
	}
	for done := false; !done; {
		err := s.receive(func(kind, flags uint16, _ uint32, body []byte) error {
			switch {
			case flags&unix.NLM_F_DUMP_INTR != 0:
				return errRulesChanging
			case kind == unix.NLMSG_DONE:
				done = true
				return nil
			case kind == unix.NLMSG_ERROR:
				done = true
				return messageError(body)
			case len(body) >= 4:
				do(body[4:])
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// errRulesChanging is returned if rules have changed during a listing.
var errRulesChanging = errors.New("the rules are being changed")

// generation returns the generation of the kernel's ruleset, which increases with every transaction of any program.
func (s *socket) generation() (id uint32, err error) {
	var m netlinkMessage
	m.begin(unix.NFT_MSG_GETGEN, 0, 0)
	m.end()
	if err := s.send(m.bytes); err != nil {
		return 0, err
	}
	err = s.receive(func(kind, _ uint16, _ uint32, body []byte) error {
		if kind == unix.NLMSG_ERROR {
			return messageError(body)
		}
		eachAttribute(body[min(4, len(body)):], func(kind uint16, value []byte) {
			if kind == unix.NFTA_GEN_ID && len(value) == 4 {
				id = binary.BigEndian.Uint32(value)
			}
		})
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of the rules: %w", err)
	}
	return id, nil
}

// hasBaseRules reports whether the base chains have the expected number of rules.
func (s *socket) hasBaseRules(t *nft.Table) (bool, error) {
	for _, name := range t.BaseChains() {
		rules := 0
		var m netlinkMessage
		m.begin(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, t.Family)
		m.addText(unix.NFTA_RULE_TABLE, t.Name)
		m.addText(unix.NFTA_RULE_CHAIN, name)
		m.end()
		err := s.list(&m, func([]byte) { rules++ })
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, errRulesChanging) {
			return false, fmt.Errorf("read the chain %s: %w", name, err)
		}
		if err == nil && rules != len(t.Chain(name).Rules) || errors.Is(err, unix.ENOENT) {
			return false, nil
		}
	}
	return true, nil
}
