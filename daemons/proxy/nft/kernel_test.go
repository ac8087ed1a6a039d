package nft

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

	"github.com/google/nftables"

	"clusterctl/daemons/proxy/rules"
)

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) {
	const inside = "NFT_TEST_INSIDE"
	if os.Getenv(inside) != "" {
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

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %s", strings.Join(args, " "), out)
	}
}

// server answers every connection with its address.
func server(t *testing.T, address string) rules.Endpoint {
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

func ask(address string) (string, error) {
	c, err := net.DialTimeout("tcp", address, 2*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	b, err := io.ReadAll(c)
	return string(b), err
}

// Rules that somebody removed are missed, and put back as a whole.
func TestRulesThatWereFlushedAreMissedS28(t *testing.T) {
	var k Kernel
	want := rules.Build(nil, rules.Machine{})
	intact := func() bool {
		t.Helper()
		is, err := k.Intact()
		if err != nil {
			t.Fatal(err)
		}
		return is
	}
	for name, flush := range map[string]func(*nftables.Conn){
		"ruleset": func(c *nftables.Conn) { c.FlushRuleset() },
		"table":   func(c *nftables.Conn) { c.FlushTable(k.table) },
	} {
		if err := k.Apply(want); err != nil {
			t.Fatal(err)
		}
		if !intact() {
			t.Fatal("not intact after it was put there")
		}
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		flush(c)
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if intact() {
			t.Errorf("intact after the %s was flushed", name)
		}
		k.Forget()
	}
	if err := k.Apply(want); err != nil || !intact() {
		t.Errorf("not intact after it was put back: %v", err)
	}
}

func TestKernelSendsToEndpointsS28S29(t *testing.T) {
	ip(t, "link", "set", "lo", "up")
	ip(t, "link", "add", "d0", "type", "bridge")
	ip(t, "addr", "add", "10.0.0.1/24", "dev", "d0")
	ip(t, "link", "set", "d0", "up")
	ip(t, "route", "add", "default", "via", "10.0.0.254")
	for _, a := range []string{"10.244.0.1", "10.244.0.2"} {
		ip(t, "addr", "add", a+"/32", "dev", "lo")
	}
	a, b := server(t, "10.244.0.1:8080"), server(t, "10.244.0.2:8080")
	web := rules.Port{Namespace: "shop", Service: "web", Name: "http", Proto: rules.TCP, Port: 80, NodePort: 30080,
		ClusterIP: netip.MustParseAddr("10.96.0.7"), External: []netip.Addr{netip.MustParseAddr("192.0.2.5")}, Endpoints: []rules.Endpoint{a, b}}
	sticky := web
	sticky.Service, sticky.ClusterIP, sticky.Affinity, sticky.NodePort, sticky.External = "sticky", netip.MustParseAddr("10.96.0.8"), 60, 0, nil
	empty := web
	empty.Service, empty.ClusterIP, empty.Endpoints, empty.NodePort, empty.External = "empty", netip.MustParseAddr("10.96.0.9"), nil, 30081, nil
	m := rules.Machine{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	k := &Kernel{}
	if err := k.Apply(rules.Build([]rules.Port{web, sticky, empty}, m)); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.96.0.7:80", "10.0.0.1:30080", "192.0.2.5:80"} {
		seen := map[string]int{}
		for range 64 {
			who, err := ask(address)
			if err != nil {
				t.Fatalf("%s: %v", address, err)
			}
			seen[who]++
		}
		if seen["10.244.0.1:8080"] == 0 || seen["10.244.0.2:8080"] == 0 || len(seen) != 2 {
			t.Errorf("%s is answered by %v", address, seen)
		}
	}
	first, err := ask("10.96.0.8:80")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if who, err := ask("10.96.0.8:80"); err != nil || who != first {
			t.Errorf("a client with affinity to %s was sent to %s (%v)", first, who, err)
		}
	}
	for _, address := range []string{"10.96.0.9:80", "10.0.0.1:30081"} {
		if _, err := ask(address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s has no endpoints and answers with %v", address, err)
		}
	}
	// One endpoint goes, the empty service gets one: only that changes.
	web.Endpoints, empty.Endpoints = []rules.Endpoint{b}, []rules.Endpoint{a}
	if err := k.Apply(rules.Build([]rules.Port{web, sticky, empty}, m)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if who, err := ask("10.96.0.7:80"); who != "10.244.0.2:8080" {
			t.Errorf("answered by %s (%v)", who, err)
		}
		if who, err := ask("10.0.0.1:30081"); who != "10.244.0.1:8080" {
			t.Errorf("answered by %s (%v)", who, err)
		}
	}
	// A proxy that was restarted replaces the table as a whole, and an open connection stays.
	open, err := net.Dial("tcp", "10.96.0.7:80")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	last := &Kernel{}
	if err := last.Apply(rules.Build([]rules.Port{web}, m)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(open); string(b) != "10.244.0.2:8080" {
		t.Errorf("an open connection got %q (%v)", b, err)
	}
	if there, err := last.Intact(); err != nil || !there {
		t.Errorf("intact: %t, %v", there, err)
	}
	if err := Remove(); err != nil {
		t.Fatal(err)
	}
	if there, _ := last.Intact(); there {
		t.Error("the rules are still there")
	}
	if err := ForgetFlows([]rules.Endpoint{a}, []rules.Port{web}); err != nil {
		t.Error(err)
	}
}

func TestManyServicesAreOneTransaction(t *testing.T) {
	var ports []rules.Port
	for i := range 500 {
		p := rules.Port{Namespace: "many", Service: fmt.Sprintf("svc-%d", i), Proto: rules.TCP, Port: 80, NodePort: uint16(30000 + i), ClusterIP: netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})}
		n := 3
		if i == 0 {
			n = 1000 // more than one message holds
		}
		for j := range n {
			p.Endpoints = append(p.Endpoints, rules.Endpoint{To: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(j >> 8), byte(j)}), 8080)})
		}
		ports = append(ports, p)
	}
	k := &Kernel{}
	began := time.Now()
	if err := k.Apply(rules.Build(ports, rules.Machine{})); err != nil {
		t.Fatal(err)
	}
	full := time.Since(began)
	ports[7].Endpoints = ports[7].Endpoints[:2]
	began = time.Now()
	if err := k.Apply(rules.Build(ports, rules.Machine{})); err != nil {
		t.Fatal(err)
	}
	t.Logf("500 services: %v at first, %v for one endpoint", full, time.Since(began))
	if err := Remove(); err != nil {
		t.Fatal(err)
	}
}
