package fetch

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/net/http/httpproxy"

	"clusterctl/daemons/config/gitsource"
)

// reservedAddresses are addresses outside of the ranges that restrict refuses, at which clouds serve the credentials of
// a machine.
var reservedAddresses = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16")}

// dialer connects to the servers of a source.
type dialer struct {
	// isTenant means that the source is not one of the cluster itself. Its servers cannot be programs that serve this
	// machine only, whatever a name, a redirect or a proxy of the source leads to.
	isTenant bool
}

// dialerOf returns the dialer for the sources of a namespace.
func dialerOf(namespace string) dialer { return dialer{isTenant: namespace != gitsource.Namespace} }

// DialContext connects to an address. It implements proxy.ContextDialer.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	direct := &net.Dialer{Timeout: dialTimeout}
	if d.isTenant && !isSystemProxy(address) {
		direct.Control = restrict
	}
	return direct.DialContext(ctx, network, address)
}

// Dial implements proxy.Dialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// restrict refuses addresses of the machine itself, and link-local ones such as that of a cloud's metadata. It sees the
// address after the name was resolved.
func restrict(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read the address %s: %w", address, err)
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() ||
		slices.Contains(reservedAddresses, ip) {
		return fmt.Errorf("the address %s is reserved for the machine itself; only sources in %s may use it", ip,
			gitsource.Namespace)
	}
	return nil
}

// isSystemProxy reports whether an address is that of a proxy of the system block, which may be on this machine.
func isSystemProxy(address string) bool {
	system := httpproxy.FromEnvironment()
	for _, text := range []string{system.HTTPProxy, system.HTTPSProxy} {
		if text == "" {
			continue
		}
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		port := u.Port()
		if port == "" {
			port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
		}
		if port == "" {
			port = "80"
		}
		if net.JoinHostPort(u.Hostname(), port) == address {
			return true
		}
	}
	return false
}
