package walk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"golang.org/x/sync/errgroup"
)

// fillerBytes is the number of bytes that follow the answer on a connection, so that packets of the maximum size are
// sent too. An encapsulated packet that exceeds the MTU would not arrive.
const fillerBytes = 64 << 10

// Serve answers at an address with its own name and the client's address, by all protocols, until the context ends. It
// answers TCP connections when they open, datagrams, and the first packets of SCTP associations.
func Serve(ctx context.Context, name, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", address)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	g, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { _, _ = l.Close(), p.Close() })
	defer stop()
	g.Go(func() error {
		for {
			c, err := l.Accept()
			if err != nil {
				return ignoreEnded(ctx, err)
			}
			go func() {
				defer c.Close()
				_, _ = fmt.Fprintf(c, "%s %s%*s\n", name, clientAddress(c.RemoteAddr().String()), fillerBytes, "")
			}()
		}
	})
	g.Go(func() error {
		b := make([]byte, 1500)
		for {
			_, from, err := p.ReadFrom(b)
			if err != nil {
				return ignoreEnded(ctx, err)
			}
			_, _ = p.WriteTo(fmt.Appendf(nil, "%s %s\n", name, clientAddress(from.String())), from)
		}
	})
	port := l.Addr().(*net.TCPAddr).Port
	g.Go(func() error { return serveSCTP(ctx, name, uint16(port)) })
	return g.Wait()
}

// WhoHandler returns a handler with the same answer for HTTP requests. A proxy in front of it gives the client's
// address in a header.
func WhoHandler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := clientAddress(r.RemoteAddr)
		if list := strings.Split(r.Header.Get("X-Forwarded-For"), ","); list[0] != "" {
			from = strings.TrimSpace(list[len(list)-1])
		}
		fmt.Fprintf(w, "%s %s\n", name, from)
	})
}

// clientAddress returns the address of an address and port, without the IPv4-mapped prefix of dual-stack sockets.
func clientAddress(from string) string {
	remote, err := netip.ParseAddrPort(from)
	if err != nil {
		return from
	}
	return remote.Addr().Unmap().String()
}

// ignoreEnded returns nil if the context has ended, because listeners then return an error.
func ignoreEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
