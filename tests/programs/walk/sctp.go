package walk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SCTP is implemented with raw sockets, because many kernels do not support it. A client sends the first packet of an
// association (INIT), and the server answers it (INIT ACK) with a parameter of its own. Address translation and
// connection tracking treat both as the packets of SCTP sockets. Raw sockets need CAP_NET_RAW, which containers have by
// default.

const (
	protocolSCTP = 132
	chunkInit    = 1
	chunkInitAck = 2
	// parameterType is the type of the parameter with the name and address in an INIT ACK. Receivers that do not know a
	// type whose first two bits are set skip the parameter.
	parameterType = 0xC0FE
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sctpPacket contains the relevant fields of a packet with one INIT or INIT ACK chunk.
type sctpPacket struct {
	from, to        uint16
	verificationTag uint32 // verification tag of the packet
	chunk           byte
	initiate        uint32 // verification tag for packets to the sender
	text            string // content of the parameter
}

func (p sctpPacket) bytes() []byte {
	text := []byte(p.text)
	b := make([]byte, 32, 36+len(text)+3)
	binary.BigEndian.PutUint16(b, p.from)
	binary.BigEndian.PutUint16(b[2:], p.to)
	binary.BigEndian.PutUint32(b[4:], p.verificationTag)
	b[12] = p.chunk
	binary.BigEndian.PutUint32(b[16:], p.initiate)
	binary.BigEndian.PutUint32(b[20:], 65536) // window
	binary.BigEndian.PutUint16(b[24:], 1)     // streams out and in
	binary.BigEndian.PutUint16(b[26:], 1)
	binary.BigEndian.PutUint32(b[28:], 1) // first transmission sequence number
	if len(text) > 0 {
		b = binary.BigEndian.AppendUint16(b, parameterType)
		b = binary.BigEndian.AppendUint16(b, uint16(4+len(text)))
		b = append(b, text...)
	}
	binary.BigEndian.PutUint16(b[14:], uint16(len(b)-12))
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[8:], crc32.Checksum(b, castagnoli))
	return b
}

func readPacket(b []byte) (p sctpPacket, ok bool) {
	if len(b) < 32 {
		return p, false
	}
	p = sctpPacket{
		from:            binary.BigEndian.Uint16(b),
		to:              binary.BigEndian.Uint16(b[2:]),
		verificationTag: binary.BigEndian.Uint32(b[4:]),
		chunk:           b[12],
	}
	p.initiate = binary.BigEndian.Uint32(b[16:])
	if len(b) >= 36 && binary.BigEndian.Uint16(b[32:]) == parameterType {
		if n := int(binary.BigEndian.Uint16(b[34:])); n >= 4 && 32+n <= len(b) {
			p.text = string(b[36 : 32+n])
		}
	}
	return p, p.chunk == chunkInit || p.chunk == chunkInitAck
}

// openRaw opens a socket that receives SCTP packets. A read waits for at most a tenth of a second.
func openRaw(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocolSCTP)
	if err != nil {
		return -1, fmt.Errorf("open a raw socket: %w", err)
	}
	timeout := unix.Timeval{Usec: 100_000}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// readRaw reads one packet. For IPv4, raw sockets return the IP header too.
func readRaw(fd int, b []byte) (p sctpPacket, from unix.Sockaddr, ok bool, err error) {
	n, from, err := unix.Recvfrom(fd, b, 0)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return p, nil, false, nil
	}
	if err != nil {
		return p, nil, false, err
	}
	content := b[:n]
	if _, four := from.(*unix.SockaddrInet4); four && n > 0 {
		content = content[min(n, 4*int(content[0]&15)):]
	}
	p, ok = readPacket(content)
	return p, from, ok, nil
}

func serveSCTP(ctx context.Context, name string, port uint16) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		fd, err := openRaw(family)
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer unix.Close(fd)
			b := make([]byte, 2048)
			for ctx.Err() == nil {
				p, from, ok, err := readRaw(fd, b)
				if err != nil || !ok || p.chunk != chunkInit || p.to != port {
					continue
				}
				answer := sctpPacket{
					from:            p.to,
					to:              p.from,
					verificationTag: p.initiate,
					chunk:           chunkInitAck,
					initiate:        rand.Uint32() | 1,
					text:            name + " " + senderAddress(from).String(),
				}
				_ = unix.Sendto(fd, answer.bytes(), 0, from)
			}
		})
	}
	return nil
}

func senderAddress(from unix.Sockaddr) netip.Addr {
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(from.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(from.Addr).Unmap()
	}
	return netip.Addr{}
}

// questionLocks has a mutex for each address, which allows one question at a time. An error that a packet was refused
// does not show which packet of the raw sockets it was.
var questionLocks sync.Map

// askSCTP sends the first packet of an association and waits for the answer.
func askSCTP(wait time.Duration, to netip.AddrPort) (reply, error) {
	lock, _ := questionLocks.LoadOrStore(to.Addr(), &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	family, address := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	fd, err := openRaw(family)
	if err != nil {
		return reply{}, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, address); err != nil { // connected sockets report refusals
		return reply{}, err
	}
	mine := sctpPacket{from: uint16(20000 + rand.IntN(40000)), to: to.Port(), chunk: chunkInit,
		initiate: rand.Uint32() | 1}
	if _, err := unix.Write(fd, mine.bytes()); err != nil {
		return reply{}, err
	}
	b := make([]byte, 2048)
	for end := time.Now().Add(wait); time.Now().Before(end); {
		p, _, ok, err := readRaw(fd, b)
		if err != nil {
			return reply{}, err
		}
		if ok && p.chunk == chunkInitAck && p.verificationTag == mine.initiate && p.to == mine.from {
			return parseReply(p.text)
		}
	}
	return reply{}, context.DeadlineExceeded
}
