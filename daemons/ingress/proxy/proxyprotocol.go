package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"strings"
)

var errProxyHeader = errors.New("the connection does not begin with the PROXY protocol")

// readProxy reads the PROXY protocol header, version 1 or 2, that a load balancer sends before the client's data.
func (c *conn) readProxy() error {
	for {
		client, size, err := parseProxy(c.buf.bytes())
		if err != nil {
			return err
		}
		if size > 0 {
			c.buf.r += size
			if client.IsValid() {
				c.client = client.Unmap()
			}
			return nil
		}
		if err := c.fill(c.e.cfg.HeadTime); err != nil {
			return err
		}
	}
}

var proxySignature = []byte("\r\n\r\n\x00\r\nQUIT\n")

// parseProxy returns the client's address and the size of the header. The address is the zero value if the load
// balancer made the connection for itself. The size is 0 if more data is needed.
func parseProxy(b []byte) (netip.Addr, int, error) {
	switch n := min(len(b), len(proxySignature)); {
	case bytes.Equal(b[:n], proxySignature[:n]):
		if len(b) < 16 {
			return netip.Addr{}, 0, nil
		}
		return parseProxyV2(b)
	case len(b) >= 6 && string(b[:6]) != "PROXY ", len(b) > 0 && b[0] != 'P':
		return netip.Addr{}, 0, errProxyHeader
	}
	end := bytes.IndexByte(b, '\n')
	switch {
	case end < 0 && len(b) > 107:
		return netip.Addr{}, 0, errProxyHeader
	case end < 0:
		return netip.Addr{}, 0, nil
	case end == 0 || b[end-1] != '\r':
		return netip.Addr{}, 0, errProxyHeader
	}
	words := strings.Split(string(b[:end-1]), " ")
	if len(words) >= 2 && words[1] == "UNKNOWN" {
		return netip.Addr{}, end + 1, nil
	}
	if len(words) != 6 || words[1] != "TCP4" && words[1] != "TCP6" {
		return netip.Addr{}, 0, errProxyHeader
	}
	addr, err := netip.ParseAddr(words[2])
	if err != nil || addr.Is4() != (words[1] == "TCP4") || addr.Zone() != "" {
		return netip.Addr{}, 0, errProxyHeader
	}
	for _, port := range words[4:] {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return netip.Addr{}, 0, errProxyHeader
		}
	}
	return addr, end + 1, nil
}

func parseProxyV2(b []byte) (netip.Addr, int, error) {
	size := 16 + int(binary.BigEndian.Uint16(b[14:16]))
	if b[12]>>4 != 2 || b[12]&0xf > 1 || size > 2048 {
		return netip.Addr{}, 0, errProxyHeader
	}
	if len(b) < size {
		return netip.Addr{}, 0, nil
	}
	if b[12]&0xf == 0 { // LOCAL: a health check of the load balancer
		return netip.Addr{}, size, nil
	}
	switch b[13] {
	case 0x11: // TCP over IPv4
		if size >= 28 {
			return netip.AddrFrom4([4]byte(b[16:20])), size, nil
		}
	case 0x21: // TCP over IPv6
		if size >= 52 {
			return netip.AddrFrom16([16]byte(b[16:32])), size, nil
		}
	default:
		return netip.Addr{}, size, nil
	}
	return netip.Addr{}, 0, errProxyHeader
}
