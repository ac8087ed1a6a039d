package proxy

import (
	"io"
	"net"
	"time"

	"clusterctl/daemons/ingress/route"
)

// tunnel forwards data between both connections after a protocol switch, until both sides have ended. The tunnel also
// ends if it is silent in both directions for the read timeout.
func (c *conn) tunnel(rule *route.Rule, up *upstream) {
	c.ended = true
	defer up.close()
	a := &c.res
	out := appendAnswer(c.out[:0], a, c.responseChanges)
	out = append(out, "Connection: upgrade\r\nUpgrade: "...)
	out = append(out, a.upgradeTo...)
	out = append(out, "\r\n\r\n"...)
	c.out = append(out, up.buf.bytes()...)
	if c.write(c.out, writeTimeout) != nil {
		return
	}
	if b := c.buf.bytes(); len(b) > 0 {
		if _, err := up.nc.Write(b); err != nil {
			return
		}
		c.buf.r = c.buf.w
	}
	if !c.e.enterTunnel(c.nc) {
		return
	}
	defer c.e.leaveTunnel(c.nc)
	_ = c.nc.SetDeadline(time.Time{})
	_ = up.nc.SetDeadline(time.Time{})
	c.readDeadline, c.writeDeadline = deadline{}, deadline{}
	quiet := &idleTimer{limit: rule.Policy.Read, conns: []net.Conn{c.nc, up.nc}}
	quiet.restart()
	done := make(chan int64, 1)
	go func() { done <- quiet.copy(up.nc, c.nc) }()
	c.sent = quiet.copy(c.nc, up.nc)
	<-done
}

// idleTimer ends a tunnel that is silent in both directions.
type idleTimer struct {
	limit time.Duration
	conns []net.Conn
}

// restart restarts the timeout of both sides.
func (q *idleTimer) restart() {
	until := time.Now().Add(q.limit)
	for _, c := range q.conns {
		_ = c.SetReadDeadline(until)
	}
}

// copy forwards data from one side to the other. At the end, it closes the sending side of to.
func (q *idleTimer) copy(to, from net.Conn) (n int64) {
	b := getBuffer(upstreamBuffer)
	defer b.free()
	last := time.Now()
	for {
		m, err := from.Read(b.b)
		if m > 0 {
			if now := time.Now(); now.Sub(last) > q.limit/8 {
				last = now
				q.restart()
			}
			_ = to.SetWriteDeadline(time.Now().Add(writeTimeout))
			if _, err := to.Write(b.b[:m]); err != nil {
				break
			}
			n += int64(m)
		}
		if err == io.EOF {
			if half, ok := to.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
				return n // the other direction continues
			}
			break
		}
		if err != nil {
			break
		}
	}
	for _, c := range q.conns {
		_ = c.SetDeadline(time.Unix(1, 0))
	}
	return n
}
