package run

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// CloseWithin closes a connection. Data that the kernel holds for the peer is sent afterwards, but is discarded if the
// peer acknowledges none of it for the time limit. By default the kernel would keep up to some MiB for minutes for each
// peer that does not read.
func CloseWithin(conn net.Conn, limit time.Duration) error {
	under := conn
	for {
		above, ok := under.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		under = above.NetConn()
	}
	if c, ok := under.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { // fails for what is not TCP, and for closed connections
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
			})
		}
	}
	return conn.Close()
}
