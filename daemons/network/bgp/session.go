package bgp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

const (
	dialTimeout = 5 * time.Second
	// openTime is how long a router may take to say who it is: RFC 4271's large hold time would be minutes.
	openTime = 15 * time.Second
	// restartTime is how long a router keeps the routes of a session that ended without a word: a daemon that starts
	// again is back by then, and a machine that is switched off in order has packets lost for no longer.
	restartTime = 5
)

// session is one connection to a peer.
type session struct {
	peer    Peer
	running *running
	log     *slog.Logger
	conn    net.Conn
	hold    time.Duration
	wide    bool         // it reads numbers of autonomous systems of four bytes
	told    []netip.Addr // what the peer has
}

// run speaks with the peer until something ends that. established is called when the session is.
func (c *session) run(ctx context.Context, established func()) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", c.peer.Address.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	c.conn = conn
	if err := c.open(); err != nil {
		return err
	}
	established()
	heard := make(chan *bgp.BGPMessage)
	failed := make(chan error, 1)
	over := make(chan struct{})
	defer close(over)
	go func() {
		for {
			m, err := c.read(c.hold)
			if err != nil {
				failed <- err
				return
			}
			select {
			case heard <- m:
			case <-over:
				return
			}
		}
	}()
	beat := time.NewTicker(c.hold / 3)
	defer beat.Stop()
	if err := c.update(true); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			if c.running.leaves() {
				c.notify(bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_PEER_DECONFIGURED)
			}
			return ctx.Err()
		case err := <-failed:
			return c.ended(err)
		case m := <-heard:
			switch body := m.Body.(type) {
			case *bgp.BGPNotification:
				return fmt.Errorf("it ended the session: %s",
					bgp.NewNotificationErrorCode(body.ErrorCode, body.ErrorSubcode))
			case *bgp.BGPOpen:
				c.notify(bgp.BGP_ERROR_FSM_ERROR, 0)
				return errors.New("it opened the session a second time")
			case *bgp.BGPRouteRefresh:
				c.told = nil
				if err := c.update(false); err != nil {
					return err
				}
			}
		case <-c.running.tell:
			if err := c.update(false); err != nil {
				return err
			}
		case <-beat.C:
			if err := c.write(bgp.NewBGPKeepAliveMessage()); err != nil {
				return err
			}
		}
	}
}

// ended says why nothing more comes, and tells the peer when it is the one that is silent.
func (c *session) ended(err error) error {
	var slow net.Error
	var wrong *bgp.MessageError
	switch {
	case errors.As(err, &slow) && slow.Timeout():
		c.notify(bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0)
		return fmt.Errorf("nothing came from it for %s", c.hold)
	case errors.As(err, &wrong):
		c.notify(wrong.TypeCode, wrong.SubTypeCode)
		return fmt.Errorf("it sent what cannot be read: %w", err)
	case errors.Is(err, io.EOF):
		return errors.New("it closed the connection")
	}
	return err
}

// open agrees with the peer on who both are.
func (c *session) open() error {
	capabilities := []bgp.ParameterCapabilityInterface{
		bgp.NewCapRouteRefresh(),
		bgp.NewCapFourOctetASNumber(c.peer.LocalASN),
	}
	var kept []*bgp.CapGracefulRestartTuple
	for _, family := range c.families() {
		capabilities = append(capabilities, bgp.NewCapMultiProtocol(family))
		kept = append(kept, bgp.NewCapGracefulRestartTuple(family, true))
	}
	capabilities = append(capabilities, bgp.NewCapGracefulRestart(false, false, restartTime, kept))
	hello, err := bgp.NewBGPOpenMessage(
		narrow(c.peer.LocalASN),
		uint16(c.peer.HoldTime/time.Second),
		c.running.machine.Identifier,
		[]bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(capabilities)},
	)
	if err != nil {
		return err
	}
	if err := c.write(hello); err != nil {
		return err
	}
	m, err := c.read(openTime)
	if err != nil {
		return c.ended(err)
	}
	if n, refused := m.Body.(*bgp.BGPNotification); refused {
		return fmt.Errorf("it refused the session: %s", bgp.NewNotificationErrorCode(n.ErrorCode, n.ErrorSubcode))
	}
	theirs, ok := m.Body.(*bgp.BGPOpen)
	if !ok {
		c.notify(bgp.BGP_ERROR_FSM_ERROR, 0)
		return errors.New("it did not open the session")
	}
	if err := c.agree(theirs); err != nil {
		return err
	}
	if err := c.write(bgp.NewBGPKeepAliveMessage()); err != nil {
		return err
	}
	if m, err = c.read(openTime); err != nil {
		return c.ended(err)
	}
	if n, refused := m.Body.(*bgp.BGPNotification); refused {
		return fmt.Errorf("it refused the session: %s", bgp.NewNotificationErrorCode(n.ErrorCode, n.ErrorSubcode))
	}
	return nil
}

// agree takes over what the peer says of itself, or refuses it.
func (c *session) agree(theirs *bgp.BGPOpen) error {
	asn := uint32(theirs.MyAS)
	for _, p := range theirs.OptParams {
		list, ok := p.(*bgp.OptionParameterCapability)
		if !ok {
			continue
		}
		for _, capability := range list.Capability {
			if four, ok := capability.(*bgp.CapFourOctetASNumber); ok {
				asn, c.wide = four.CapValue, true
			}
		}
	}
	if asn != c.peer.ASN {
		c.notify(bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_BAD_PEER_AS)
		return fmt.Errorf("it is of autonomous system %d, not %d", asn, c.peer.ASN)
	}
	c.hold = min(c.peer.HoldTime, time.Duration(theirs.HoldTime)*time.Second)
	if c.hold < 3*time.Second { // 0 would be for ever
		c.notify(bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME)
		return fmt.Errorf("its hold time is %d s", theirs.HoldTime)
	}
	return nil
}

// families are those of which this machine has an address.
func (c *session) families() (list []bgp.Family) {
	if _, ok := c.running.machine.nextHop(true); ok {
		list = append(list, bgp.RF_IPv4_UC)
	}
	if _, ok := c.running.machine.nextHop(false); ok {
		list = append(list, bgp.RF_IPv6_UC)
	}
	return list
}

// read returns the next message, if it comes in time.
func (c *session) read(within time.Duration) (*bgp.BGPMessage, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return nil, err
	}
	head := make([]byte, bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(c.conn, head); err != nil {
		return nil, err
	}
	var h bgp.BGPHeader
	if err := h.DecodeFromBytes(head); err != nil {
		return nil, err
	}
	if h.Len < bgp.BGP_HEADER_LENGTH || h.Len > bgp.BGP_MAX_MESSAGE_LENGTH {
		return nil, bgp.NewMessageError(
			bgp.BGP_ERROR_MESSAGE_HEADER_ERROR,
			bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH,
			nil,
			fmt.Sprintf("a message of %d bytes", h.Len),
		)
	}
	body := make([]byte, int(h.Len)-len(head))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return nil, err
	}
	if h.Type == bgp.BGP_MSG_UPDATE { // the router's routes are not taken
		return &bgp.BGPMessage{Header: h, Body: &bgp.BGPKeepAlive{}}, nil
	}
	return bgp.ParseBGPBody(&h, body)
}

func (c *session) write(m *bgp.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(max(c.hold, openTime))); err != nil {
		return err
	}
	_, err = c.conn.Write(b)
	return err
}

// notify says why the session ends. Whether that arrives is not waited for.
func (c *session) notify(code, sub uint8) {
	_ = c.write(bgp.NewBGPNotificationMessage(code, sub, nil))
}

// most is how many addresses one message has: 4,096 bytes are enough for them.
const most = 200

// update tells the peer what is new and what is gone since it was last told; ends is that it was all for the first
// time.
func (c *session) update(ends bool) error {
	wants := slices.DeleteFunc(slices.Clone(c.running.wanted()), func(a netip.Addr) bool {
		_, ok := c.running.machine.nextHop(a.Is4())
		return !ok
	})
	added := slices.DeleteFunc(slices.Clone(wants), func(a netip.Addr) bool { return slices.Contains(c.told, a) })
	gone := slices.DeleteFunc(slices.Clone(c.told), func(a netip.Addr) bool { return slices.Contains(wants, a) })
	for _, v4 := range []bool{true, false} {
		for list := range slices.Chunk(ofFamily(gone, v4), most) {
			if err := c.send(withdrawal(list, v4)); err != nil {
				return err
			}
		}
		for list := range slices.Chunk(ofFamily(added, v4), most) {
			hop, _ := c.running.machine.nextHop(v4)
			if err := c.send(announcement(list, hop, c.peer, c.wide)); err != nil {
				return err
			}
		}
	}
	if ends {
		for _, family := range c.families() {
			if err := c.write(bgp.NewEndOfRib(family)); err != nil {
				return err
			}
		}
	}
	c.told = wants
	return nil
}

func (c *session) send(m *bgp.BGPMessage, err error) error {
	if err != nil {
		return err
	}
	return c.write(m)
}
