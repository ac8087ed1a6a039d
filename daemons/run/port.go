package run

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Range from which FreePort chooses: above the ports of kube-ingress's Gateways and below those of Services.
const (
	firstFreePort = 21000
	lastFreePort  = 29999
)

// FreePort returns an unused port of 127.0.0.1 for a process that starts later. It avoids the kernel's range of
// ephemeral ports, since any of those may be taken by then, unless that range covers everything.
func FreePort() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, fmt.Errorf("look which ports connections get: %w", err)
	}
	var first, last int
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		return 0, fmt.Errorf("read which ports connections get from %q: %w", text, err)
	}
	if first <= lastFreePort && last >= firstFreePort {
		return listenOnce(0)
	}
	for range 100 {
		port, err := listenOnce(firstFreePort + rand.IntN(lastFreePort-firstFreePort+1))
		if !errors.Is(err, unix.EADDRINUSE) {
			return port, err
		}
	}
	return 0, fmt.Errorf("of 100 ports of 127.0.0.1 from %d to %d all are in use", firstFreePort, lastFreePort)
}

func listenOnce(port int) (int, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}
