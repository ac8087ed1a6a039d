package bgp

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// birdRouter is a BIRD on the loopback interface, with this machine as peer 127.0.0.1.
type birdRouter struct {
	control string
	peer    Peer
}

const birdConfig = `
router id 192.0.2.254;
protocol device {}
ipv4 table master4;
ipv6 table master6;
protocol bgp machine {
  local 127.0.0.2 port %d as %d;
  neighbor 127.0.0.1 as %d;
  multihop 2; passive on; hold time %d; error wait time 1, 2;
  enable as4 %s;
  graceful restart on;
  ipv4 { import all; export none; };
  ipv6 { import all; export none; };
}
`

// startRouter starts a router with AS number asn, which expects this machine in the AS local.
func startRouter(t *testing.T, asn, local uint32, wide bool) *birdRouter {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.Addr().String())
	_ = l.Close()
	as4 := "on"
	if !wide {
		as4 = "off"
	}
	conf := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, birdConfig, at.Port(), asn, local, 3, as4), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &birdRouter{
		control: filepath.Join(dir, "ctl"),
		peer:    Peer{Address: at, ASN: asn, LocalASN: local, HoldTime: 3 * time.Second},
	}
	cmd := exec.Command("bird", "-f", "-c", conf, "-s", r.control, "-P", filepath.Join(dir, "pid"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("start BIRD, of Debian's package bird2: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r.eventually(t, "show status", "BIRD")
	return r
}

func (r *birdRouter) runCommand(words string) string {
	out, _ := exec.Command("birdc", append([]string{"-r", "-s", r.control}, strings.Fields(words)...)...).
		CombinedOutput()
	return string(out)
}

// eventually waits until the router's output matches all patterns, and none of those that begin with !.
func (r *birdRouter) eventually(t *testing.T, words string, patterns ...string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		message := r.runCommand(words)
		all := true
		for _, p := range patterns {
			if pattern, not := strings.CutPrefix(p, "!"); regexp.MustCompile(pattern).MatchString(message) == not {
				all = false
			}
		}
		if all {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: no output matches %q; it says\n%s", words, patterns, message)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

var testMachine = Machine{
	Identifier: netip.MustParseAddr("192.0.2.1"),
	NextHops:   []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
}

func speaker() *Speaker { return New(slog.New(slog.DiscardHandler)) }

func parseAddresses(list ...string) (all []netip.Addr) {
	for _, text := range list {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// Proves S22.
func TestARouterReceivesAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		asn, local uint32
		wide       bool
		path       string
	}{
		"another autonomous system":       {64513, 64512, true, "BGP.as_path: 64512\n"},
		"the same":                        {64512, 64512, true, "BGP.as_path: \n"},
		"a number of four bytes":          {64513, 4200000001, true, "BGP.as_path: 4200000001\n"},
		"a router that knows two of them": {64513, 64512, false, "BGP.as_path: 64512\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRouter(t, c.asn, c.local, c.wide)
			s := speaker()
			ctx, stop := context.WithCancel(t.Context())
			defer s.Wait()
			defer stop()
			s.Set(ctx, testMachine,
				map[Peer][]netip.Addr{r.peer: parseAddresses("203.0.113.7", "203.0.113.9", "2001:db8:7::1")})
			r.eventually(t, "show route all", `203\.0\.113\.7/32`, `203\.0\.113\.9/32`, `2001:db8:7::1/128`, c.path,
				`next_hop: 192\.0\.2\.1\n`, `next_hop: 2001:db8::1\b`)
			// Only the change is announced, and unwanted addresses are withdrawn.
			s.Set(ctx, testMachine, map[Peer][]netip.Addr{r.peer: parseAddresses("203.0.113.9", "203.0.113.10")})
			r.eventually(t, "show route", `!203\.0\.113\.7/32`, `203\.0\.113\.9/32`, `203\.0\.113\.10/32`, `!2001:db8`)
			// On a route refresh, everything is announced again.
			if out, err := exec.Command("birdc", "-s", r.control, "reload", "in",
				"machine").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			r.eventually(t, "show protocols all machine", `Import updates: +[5-9] `)
			r.eventually(t, "show route", `203\.0\.113\.9/32`, `203\.0\.113\.10/32`)
			// A removed peer keeps no routes.
			s.Set(ctx, testMachine, nil)
			r.eventually(t, "show route", `!203\.0\.113`)
			r.eventually(t, "show protocols all machine", `deconfigured|Passive|Active`)
		})
	}
}

// More addresses than fit into one message are announced, and then withdrawn.
func TestManyAddressesAreAnnouncedInSeveralMessages(t *testing.T) {
	r, s := startRouter(t, 64513, 64512, true), speaker()
	ctx, stop := context.WithCancel(t.Context())
	defer s.Wait()
	defer stop()
	var many []netip.Addr
	for i, a := 0, netip.MustParseAddr("203.0.0.0"); i < 1000; i++ {
		a = a.Next()
		many = append(many, a)
	}
	s.Set(ctx, testMachine, map[Peer][]netip.Addr{r.peer: many})
	r.eventually(t, "show route count", `1000 of 1000 routes`)
	s.Set(ctx, testMachine, map[Peer][]netip.Addr{r.peer: nil})
	r.eventually(t, "show route count", `0 of 0 routes`)
}

// A daemon that restarts within a few seconds causes no interruption. The routes of one that stays away are removed.
func TestADaemonRestartKeepsTheRoutes(t *testing.T) {
	r := startRouter(t, 64513, 64512, true)
	wants := map[Peer][]netip.Addr{r.peer: parseAddresses("203.0.113.7")}
	first := speaker()
	ctx, stop := context.WithCancel(t.Context())
	first.Set(ctx, testMachine, wants)
	r.eventually(t, "show route", `203\.0\.113\.7/32`)
	stop()
	first.Wait()
	r.eventually(t, "show protocols all machine", `BGP state: +(Passive|Active|Idle)`)
	if message := r.runCommand("show route"); !strings.Contains(message, "203.0.113.7/32") {
		t.Fatalf("it was forgotten at once: %s", message)
	}
	second := speaker()
	ctx, stop = context.WithCancel(t.Context())
	second.Set(ctx, testMachine, wants)
	r.eventually(t, "show protocols all machine", `BGP state: +Established`)
	if message := r.runCommand("show route"); !strings.Contains(message, "203.0.113.7/32") {
		t.Fatalf("it was forgotten: %s", message)
	}
	stop()
	second.Wait()
	r.eventually(t, "show route", `!203\.0\.113\.7`)
}

// A router with another AS number is rejected with a notification, and tried again later. A router that is not
// reachable yet is found once it is.
func TestARouterWithAnotherASNIsRejected(t *testing.T) {
	r, s := startRouter(t, 64513, 64512, true), speaker()
	ctx, stop := context.WithCancel(t.Context())
	defer s.Wait()
	defer stop()
	wrong := r.peer
	wrong.ASN = 64999
	s.Set(ctx, testMachine, map[Peer][]netip.Addr{wrong: parseAddresses("203.0.113.7")})
	r.eventually(t, "show protocols all machine", `Bad peer AS`)
	s.Set(ctx, testMachine, map[Peer][]netip.Addr{r.peer: parseAddresses("203.0.113.7")})
	r.eventually(t, "show route", `203\.0\.113\.7/32`)
}
