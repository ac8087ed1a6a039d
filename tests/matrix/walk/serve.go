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

// filler is how much follows the answer on a connection, so that the largest packets that there are go the way as well:
// one that has to be wrapped, and does not fit any more, would never arrive.
const filler = 64 << 10

// Serve answers by all protocols at an address with its own name and the client's address, until the context ends:
// connections of TCP when they begin, datagrams, and the first packets of associations of SCTP.
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
				return ended(ctx, err)
			}
			go func() {
				defer c.Close()
				_, _ = fmt.Fprintf(c, "%s %s%*s\n", name, client(c.RemoteAddr().String()), filler, "")
			}()
		}
	})
	g.Go(func() error {
		b := make([]byte, 1500)
		for {
			_, from, err := p.ReadFrom(b)
			if err != nil {
				return ended(ctx, err)
			}
			_, _ = p.WriteTo(fmt.Appendf(nil, "%s %s\n", name, client(from.String())), from)
		}
	})
	port := l.Addr().(*net.TCPAddr).Port
	g.Go(func() error { return serveSCTP(ctx, name, uint16(port)) })
	return g.Wait()
}

// Who answers requests of HTTP likewise. A proxy before it says in a field who its client is.
func Who(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := client(r.RemoteAddr)
		if list := strings.Split(r.Header.Get("X-Forwarded-For"), ","); list[0] != "" {
			from = strings.TrimSpace(list[len(list)-1])
		}
		fmt.Fprintf(w, "%s %s\n", name, from)
	})
}

// client is the address of an address and port, without what marks one of IPv4 on a socket of both families.
func client(from string) string {
	is, err := netip.ParseAddrPort(from)
	if err != nil {
		return from
	}
	return is.Addr().Unmap().String()
}

// ended is nil when a context has ended, since then listeners end with an error.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
