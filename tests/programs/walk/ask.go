package walk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
)

// dial opens a connection. For UDP it uses one of the source ports of the question, if the question has some.
func (a Ask) dial(ctx context.Context, to netip.AddrPort) (c net.Conn, err error) {
	if a.Protocol != "UDP" || a.Ports == 0 {
		return (&net.Dialer{}).DialContext(ctx, strings.ToLower(a.Protocol), to.String())
	}
	for range 100 {
		d := net.Dialer{LocalAddr: &net.UDPAddr{Port: a.Ports + rand.IntN(PortsOfAsk)}}
		if c, err = d.DialContext(ctx, "udp", to.String()); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return c, err
}

// askPlain asks over TCP, where the server sends first, or with a datagram.
func (a Ask) askPlain(ctx context.Context, to netip.AddrPort) (reply, error) {
	c, err := a.dial(ctx, to)
	if err != nil {
		return reply{}, err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return reply{}, err
	}
	if a.Protocol == "UDP" {
		if _, err := io.WriteString(c, "?"); err != nil {
			return reply{}, err
		}
	}
	if a.Protocol == "TCP" {
		text, err := io.ReadAll(c)
		if err == nil && len(text) < fillerBytes {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return reply{}, err
		}
		return parseReply(string(text))
	}
	b := make([]byte, 512)
	n, err := c.Read(b)
	if err != nil {
		return reply{}, err
	}
	return parseReply(string(b[:n]))
}

func (a Ask) askHTTP(ctx context.Context, to netip.AddrPort) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", strings.ToLower(a.Protocol)+"://"+to.String()+"/who", nil)
	if err != nil {
		return reply{}, err
	}
	r.Host = a.Host
	// The test checks that the certificate is for the host, and not who has signed it.
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{ServerName: a.Host, InsecureSkipVerify: true},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return reply{}, statusError(answer.StatusCode)
	}
	if answer.TLS != nil {
		if err := answer.TLS.PeerCertificates[0].VerifyHostname(a.Host); err != nil {
			return reply{}, err
		}
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 512))
	if err != nil {
		return reply{}, err
	}
	return parseReply(string(text))
}

// parseReply parses the answer of a server: its name, and the client's address as the server sees it.
func parseReply(text string) (reply, error) {
	words := strings.Fields(text)
	if len(words) != 2 {
		return reply{}, fmt.Errorf("the server said %.100q", text)
	}
	return reply{words[0], words[1]}, nil
}
