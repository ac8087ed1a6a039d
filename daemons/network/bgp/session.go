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
	// openTimeout limits how long a router may take to send its OPEN message. RFC 4271 suggests a hold time of minutes.
	openTimeout = 15 * time.Second
	// stopTime limits how long a pending write may take after the session's context has ended.
	stopTime = time.Second
	// restartTime is how long, in seconds, a router keeps the routes of a session that ended without a notification. A
	// restarted daemon is back by then. A machine that is shut down loses packets for no longer than that.
	restartTime = 5
)

// session is one connection to a peer.
type session struct {
	peer      Peer
	running   *runningSession
	log       *slog.Logger
	conn      net.Conn
	holdTime  time.Duration
	wide      bool         // the peer supports four-byte AS numbers
	announced []netip.Addr // the announced addresses
}

// run runs the session until it ends, and returns why. It calls established once the session is established.
func (c *session) run(ctx context.Context, established func()) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", c.peer.Address.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	c.conn = conn
	c.holdTime = openTimeout // both sides agree on another time in open
	// A silent router must not delay the stop.
	opened := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = c.open()
	if !opened() {
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	// A write that waits for the router ends soon after ctx. The notification after it has a deadline of its own.
	defer context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Now().Add(stopTime)) })()
	established()
	messages := make(chan *bgp.BGPMessage)
	failed := make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			m, err := c.readMessage(c.holdTime)
			if err != nil {
				failed <- err
				return
			}
			select {
			case messages <- m:
			case <-done:
				return
			}
		}
	}()
	beat := time.NewTicker(c.holdTime / 3)
	defer beat.Stop()
	if err := c.update(true); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			if c.running.isLeaving() {
				c.notify(bgp.BGP_ERROR_CEASE, bgp.BGP_ERROR_SUB_PEER_DECONFIGURED)
			}
			return ctx.Err()
		case err := <-failed:
			return c.endReason(err)
		case m := <-messages:
			switch body := m.Body.(type) {
			case *bgp.BGPNotification:
				return fmt.Errorf("it ended the session: %s",
					bgp.NewNotificationErrorCode(body.ErrorCode, body.ErrorSubcode))
			case *bgp.BGPOpen:
				c.notify(bgp.BGP_ERROR_FSM_ERROR, 0)
				return errors.New("it opened the session a second time")
			case *bgp.BGPRouteRefresh:
				c.announced = nil
				if err := c.update(false); err != nil {
					return err
				}
			}
		case <-c.running.wake:
			if err := c.update(false); err != nil {
				return err
			}
		case <-beat.C:
			if err := c.writeMessage(bgp.NewBGPKeepAliveMessage()); err != nil {
				return err
			}
		}
	}
}

// endReason returns why no more messages arrive. It notifies the peer if the peer was silent or sent an invalid
// message.
func (c *session) endReason(err error) error {
	var slow net.Error
	var wrong *bgp.MessageError
	switch {
	case errors.As(err, &slow) && slow.Timeout():
		c.notify(bgp.BGP_ERROR_HOLD_TIMER_EXPIRED, 0)
		return fmt.Errorf("nothing came from it for %s", c.holdTime)
	case errors.As(err, &wrong):
		c.notify(wrong.TypeCode, wrong.SubTypeCode)
		return fmt.Errorf("it sent what cannot be read: %w", err)
	case errors.Is(err, io.EOF):
		return errors.New("it closed the connection")
	}
	return err
}

// open exchanges OPEN messages with the peer.
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
	hello, err := bgp.NewBGPOpenMessage(shortASN(c.peer.LocalASN), uint16(c.peer.HoldTime/time.Second),
		c.running.machine.Identifier, []bgp.OptionParameterInterface{bgp.NewOptionParameterCapability(capabilities)})
	if err != nil {
		return err
	}
	if err := c.writeMessage(hello); err != nil {
		return err
	}
	m, err := c.readMessage(openTimeout)
	if err != nil {
		return c.endReason(err)
	}
	if n, refused := m.Body.(*bgp.BGPNotification); refused {
		return fmt.Errorf("it refused the session: %s", bgp.NewNotificationErrorCode(n.ErrorCode, n.ErrorSubcode))
	}
	theirs, ok := m.Body.(*bgp.BGPOpen)
	if !ok {
		c.notify(bgp.BGP_ERROR_FSM_ERROR, 0)
		return errors.New("it did not open the session")
	}
	if err := c.acceptOpen(theirs); err != nil {
		return err
	}
	if err := c.writeMessage(bgp.NewBGPKeepAliveMessage()); err != nil {
		return err
	}
	if m, err = c.readMessage(openTimeout); err != nil {
		return c.endReason(err)
	}
	if n, refused := m.Body.(*bgp.BGPNotification); refused {
		return fmt.Errorf("it refused the session: %s", bgp.NewNotificationErrorCode(n.ErrorCode, n.ErrorSubcode))
	}
	return nil
}

// acceptOpen validates the peer's OPEN message and adopts its parameters.
func (c *session) acceptOpen(theirs *bgp.BGPOpen) error {
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
	c.holdTime = min(c.peer.HoldTime, time.Duration(theirs.HoldTime)*time.Second)
	if c.holdTime < 3*time.Second { // 0 would mean no timeout
		c.notify(bgp.BGP_ERROR_OPEN_MESSAGE_ERROR, bgp.BGP_ERROR_SUB_UNACCEPTABLE_HOLD_TIME)
		return fmt.Errorf("its hold time is %d s", theirs.HoldTime)
	}
	return nil
}

// families returns the address families of which this machine has an address.
func (c *session) families() (list []bgp.Family) {
	if _, ok := c.running.machine.nextHop(true); ok {
		list = append(list, bgp.RF_IPv4_UC)
	}
	if _, ok := c.running.machine.nextHop(false); ok {
		list = append(list, bgp.RF_IPv6_UC)
	}
	return list
}

// readMessage returns the next message, or an error if it does not arrive in time.
func (c *session) readMessage(within time.Duration) (*bgp.BGPMessage, error) {
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
		return nil, bgp.NewMessageError(bgp.BGP_ERROR_MESSAGE_HEADER_ERROR, bgp.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, nil,
			fmt.Sprintf("a message of %d bytes", h.Len))
	}
	body := make([]byte, int(h.Len)-len(head))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return nil, err
	}
	if h.Type == bgp.BGP_MSG_UPDATE { // the router's routes are ignored
		return &bgp.BGPMessage{Header: h, Body: &bgp.BGPKeepAlive{}}, nil
	}
	return bgp.ParseBGPBody(&h, body)
}

func (c *session) writeMessage(m *bgp.BGPMessage) error {
	b, err := m.Serialize()
	if err != nil {
		return err
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(max(c.holdTime, openTimeout))); err != nil {
		return err
	}
	_, err = c.conn.Write(b)
	return err
}

// notify sends the peer the reason why the session ends. It ignores errors.
func (c *session) notify(code, sub uint8) {
	_ = c.writeMessage(bgp.NewBGPNotificationMessage(code, sub, nil))
}

// maxAnnounced is how many addresses one message announces. They fit into its 4,096 bytes.
const maxAnnounced = 200

// update announces new addresses and withdraws removed ones since the last update. If ends is set, it marks the end of
// the initial announcements.
func (c *session) update(ends bool) error {
	wants := slices.DeleteFunc(slices.Clone(c.running.currentAddresses()), func(a netip.Addr) bool {
		_, ok := c.running.machine.nextHop(a.Is4())
		return !ok
	})
	added := slices.DeleteFunc(slices.Clone(wants), func(a netip.Addr) bool { return slices.Contains(c.announced, a) })
	removed := slices.DeleteFunc(slices.Clone(c.announced),
		func(a netip.Addr) bool { return slices.Contains(wants, a) })
	for _, v4 := range []bool{true, false} {
		for list := range slices.Chunk(ofFamily(removed, v4), maxAnnounced) {
			if err := c.sendMessage(withdrawal(list, v4)); err != nil {
				return err
			}
		}
		for list := range slices.Chunk(ofFamily(added, v4), maxAnnounced) {
			hop, _ := c.running.machine.nextHop(v4)
			if err := c.sendMessage(announcement(list, hop, c.peer, c.wide)); err != nil {
				return err
			}
		}
	}
	if ends {
		for _, family := range c.families() {
			if err := c.writeMessage(bgp.NewEndOfRib(family)); err != nil {
				return err
			}
		}
	}
	c.announced = wants
	return nil
}

func (c *session) sendMessage(m *bgp.BGPMessage, err error) error {
	if err != nil {
		return err
	}
	return c.writeMessage(m)
}
