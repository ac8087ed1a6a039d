package proxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/daemons/proxy/flows"
	"clusterctl/daemons/proxy/rules"
)

// TestMain runs the tests in a separate network namespace.
func TestMain(m *testing.M) {
	const inside = "NFT_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s", out)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Env = append(os.Environ(), inside+"=1")
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	var exit *exec.ExitError
	switch err := self.Run(); {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "these tests need root, for a network namespace of their own:", err)
		os.Exit(1)
	}
}

func ipOf(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %s", strings.Join(args, " "), out)
	}
}

// serveAddress answers every connection to an address with that address.
func serveAddress(t *testing.T, address string) rules.Endpoint {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, address)
			c.Close()
		}
	}()
	return rules.Endpoint{To: netip.MustParseAddrPort(address), Local: true}
}

func askServer(address string) (string, error) {
	c, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	b, err := io.ReadAll(c)
	return string(b), err
}

func newTestFamily(t testing.TB, m rules.Machine) *nftBackend {
	t.Helper()
	table, err := rules.NewTable(nft.IPv4, m)
	if err != nil {
		t.Fatal(err)
	}
	return &nftBackend{table: table}
}

// putPorts sets the ports of services, and updates the kernel.
func (f *nftBackend) putPorts(t testing.TB, ports ...rules.Port) {
	t.Helper()
	for _, p := range ports {
		if err := f.table.SetService(p.Namespace+"/"+p.Service, []rules.Port{p}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.kernel.Apply(f.table.Table); err != nil {
		t.Fatal(err)
	}
}

// Proves S28, S29.
func TestKernelForwardsToEndpoints(t *testing.T) {
	addTestAddresses(t)
	a, b := serveAddress(t, "10.244.0.1:8080"), serveAddress(t, "10.244.0.2:8080")
	web := rules.Port{Namespace: "shop", Service: "web", Name: "http", Proto: nft.TCP, Port: 80, NodePort: 30080,
		ClusterIP: netip.MustParseAddr(
			"10.96.0.7"), External: []netip.Addr{netip.MustParseAddr("192.0.2.5")}, Endpoints: []rules.Endpoint{a, b}}
	sticky := web
	sticky.Service, sticky.ClusterIP, sticky.Affinity, sticky.NodePort, sticky.External = "sticky", netip.MustParseAddr(
		"10.96.0.8"), 60, 0, nil
	empty := web
	empty.Service, empty.ClusterIP, empty.Endpoints, empty.NodePort, empty.External = "empty", netip.MustParseAddr(
		"10.96.0.9"), nil, 30081, nil
	m := rules.Machine{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	f := newTestFamily(t, m)
	f.putPorts(t, web, sticky, empty)
	for _, address := range []string{"10.96.0.7:80", "10.0.0.1:30080", "192.0.2.5:80"} {
		seen := map[string]int{}
		for range 64 {
			who, err := askServer(address)
			if err != nil {
				t.Fatalf("%s: %v", address, err)
			}
			seen[who]++
		}
		if seen["10.244.0.1:8080"] == 0 || seen["10.244.0.2:8080"] == 0 || len(seen) != 2 {
			t.Errorf("%s is answered by %v", address, seen)
		}
	}
	first, err := askServer("10.96.0.8:80")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if who, err := askServer("10.96.0.8:80"); err != nil || who != first {
			t.Errorf("a client with affinity to %s was sent to %s (%v)", first, who, err)
		}
	}
	for _, address := range []string{"10.96.0.9:80", "10.0.0.1:30081"} {
		if _, err := askServer(address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s has no endpoints and answers with %v", address, err)
		}
	}
	// One endpoint is removed, and the empty service gets one: only that changes.
	web.Endpoints, empty.Endpoints = []rules.Endpoint{b}, []rules.Endpoint{a}
	f.putPorts(t, web, empty)
	for range 10 {
		if who, err := askServer("10.96.0.7:80"); who != "10.244.0.2:8080" {
			t.Errorf("answered by %s (%v)", who, err)
		}
		if who, err := askServer("10.0.0.1:30081"); who != "10.244.0.1:8080" {
			t.Errorf("answered by %s (%v)", who, err)
		}
	}
	// A restarted proxy takes over the rules, and an open connection stays.
	open, err := net.Dial("tcp", "10.96.0.7:80")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	last := newTestFamily(t, m)
	last.putPorts(t, web)
	if b, err := io.ReadAll(open); string(b) != "10.244.0.2:8080" {
		t.Errorf("an open connection got %q (%v)", b, err)
	}
	if exists, err := last.kernel.IsIntact(last.table.Table, true); err != nil || !exists {
		t.Errorf("intact: %t, %v", exists, err)
	}
	if err := kernel.Remove(nft.IPv4, rules.TableName); err != nil {
		t.Fatal(err)
	}
	if exists, _ := last.kernel.IsIntact(last.table.Table, false); exists {
		t.Error("the rules are still there")
	}
	if err := flows.Delete(nft.IPv4,
		rules.StaleFlows{Endpoints: []rules.RemovedEndpoint{{Port: web, To: a.To}},
			Services: []rules.Port{web}}); err != nil {
		t.Error(err)
	}
}

// addTestAddresses adds an interface with the address of a node, and the addresses of two pods.
func addTestAddresses(t *testing.T) {
	ipOf(t, "link", "add", "d0", "type", "bridge")
	ipOf(t, "addr", "add", "10.0.0.1/24", "dev", "d0")
	ipOf(t, "link", "set", "d0", "up")
	ipOf(t, "route", "add", "default", "via", "10.0.0.254")
	t.Cleanup(func() { ipOf(t, "link", "del", "d0") })
	for _, a := range []string{"10.244.0.1", "10.244.0.2"} {
		ipOf(t, "addr", "add", a+"/32", "dev", "lo")
		t.Cleanup(func() { ipOf(t, "addr", "del", a+"/32", "dev", "lo") })
	}
}

// manyPorts returns services with two endpoints each, one of them local.
func manyPorts(n int) []rules.Port {
	ports := make([]rules.Port, n)
	for i := range ports {
		ip := func(first byte) netip.Addr {
			return netip.AddrFrom4([4]byte{first, byte(i >> 16), byte(i >> 8), byte(i)})
		}
		ports[i] = rules.Port{
			Namespace: "many",
			Service:   fmt.Sprintf("svc-%d", i),
			Proto:     nft.TCP,
			Port:      80,
			ClusterIP: ip(11),
			Endpoints: []rules.Endpoint{
				{To: netip.AddrPortFrom(ip(12), 8080), Local: true},
				{To: netip.AddrPortFrom(ip(13), 8080)},
			},
		}
	}
	return ports
}

var testMachine = rules.Machine{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}

func TestAServiceWithManyEndpointsIsOneTransaction(t *testing.T) {
	p := manyPorts(1)[0]
	for i := range 5000 { // more than one message can hold
		p.Endpoints = append(p.Endpoints,
			rules.Endpoint{To: netip.AddrPortFrom(netip.AddrFrom4([4]byte{14, 0, byte(i >> 8), byte(i)}), 8080)})
	}
	f := newTestFamily(t, testMachine)
	f.putPorts(t, p)
	if exists, err := f.kernel.IsIntact(f.table.Table, true); err != nil || !exists {
		t.Errorf("intact: %t, %v", exists, err)
	}
	if err := kernel.Remove(nft.IPv4, rules.TableName); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkOneEndpointChanges removes and adds one endpoint among many services. It includes the kernel's work.
func BenchmarkOneEndpointChanges(b *testing.B) {
	for _, n := range []int{1000, 10000, 40000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ports := manyPorts(n)
			f := newTestFamily(b, testMachine)
			f.putPorts(b, ports...)
			b.ReportAllocs()
			before := cpuTime(b)
			for i := range b.N {
				p := ports[i%n]
				if i/n%2 == 0 {
					p.Endpoints = p.Endpoints[:1]
				}
				f.putPorts(b, p)
			}
			b.ReportMetric((cpuTime(b)-before).Seconds()*1e3/float64(b.N), "cpu-ms/op")
			if err := kernel.Remove(nft.IPv4, rules.TableName); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkAllServices writes all services at once: into an empty kernel, and after a restart of the proxy.
func BenchmarkAllServices(b *testing.B) {
	for _, restart := range []bool{false, true} {
		for _, n := range []int{1000, 10000, 40000} {
			b.Run(fmt.Sprintf("restart=%t/%d", restart, n), func(b *testing.B) {
				ports := manyPorts(n)
				if restart {
					newTestFamily(b, testMachine).putPorts(b, ports...)
				}
				b.ReportAllocs()
				b.ResetTimer()
				before := cpuTime(b)
				for range b.N {
					if !restart {
						b.StopTimer()
						if err := kernel.Remove(nft.IPv4, rules.TableName); err != nil {
							b.Fatal(err)
						}
						b.StartTimer()
					}
					newTestFamily(b, testMachine).putPorts(b, ports...)
				}
				b.ReportMetric((cpuTime(b)-before).Seconds()/float64(b.N), "cpu-s/op")
				if err := kernel.Remove(nft.IPv4, rules.TableName); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// cpuTime returns the CPU time of this process, including the kernel's work for it.
func cpuTime(b *testing.B) time.Duration { return usedCPU(b, syscall.RUSAGE_SELF) }

// childCPUTime returns the CPU time of the called programs.
func childCPUTime(b *testing.B) time.Duration { return usedCPU(b, syscall.RUSAGE_CHILDREN) }

func usedCPU(b *testing.B, who int) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
