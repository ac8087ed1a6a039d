package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/daemons/proxy/iptables"
	"clusterctl/daemons/proxy/rules"
	"clusterctl/tests/lab/netns"
)

// openConnection opens a connection from a namespace to a service. The returned function sends a word and waits for its
// echo.
func openConnection(t *testing.T, from *netns.Stack, to string) func(word string) error {
	t.Helper()
	var c net.Conn
	if err := from.Do(func() (err error) {
		c,
			err = net.DialTimeout("tcp", to, longTimeout)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	read := bufio.NewReader(c)
	if _, err := read.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return func(word string) error {
		_ = c.SetDeadline(time.Now().Add(longTimeout))
		if _, err := fmt.Fprintln(c, word); err != nil {
			return err
		}
		if got, err := read.ReadString('\n'); err != nil || strings.TrimSpace(got) != word {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	}
}

// remainingModes returns the modes that have rules in the kernel.
func remainingModes(t *testing.T, f nft.Family) (modes []string) {
	t.Helper()
	if exec.Command("nft", "list", "table", f.String(), rules.TableName).Run() == nil {
		modes = append(modes, modeNFTables)
	}
	exists, err := iptables.HasChains(f)
	if err != nil {
		t.Fatal(err)
	}
	if exists {
		modes = append(modes, modeIPTables)
	}
	return modes
}

// A change of the mode interrupts no connection that the kernel forwards, and leaves nothing of the previous mode. New
// connections succeed at all times.
// Proves S28.
func TestModeChangesKeepConnections(t *testing.T) {
	g := newTestNetwork(t)
	t.Cleanup(func() {
		for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
			if err := iptables.RemoveChains(f); err != nil {
				t.Error(err)
			}
			if err := kernel.Remove(f, rules.TableName); err != nil {
				t.Error(err)
			}
		}
	})
	s := matrixService(0)
	s.Spec.SessionAffinity = corev1.ServiceAffinityNone
	talks := map[string]func(string) error{}
	failures := make(chan error, 1)
	stop := make(chan struct{})
	start := false
	for step, mode := range []string{modeNFTables, modeIPTables, modeNFTables, modeIPTables, modeUserspace,
		modeNFTables} {
		d := machineA(t, mode)
		d.putService(t, s, newSlices(s.Name, 2, 102)...)
		for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
			want := modeNFTables
			if mode == modeIPTables {
				want = modeIPTables
			}
			if got := remainingModes(t, f); len(got) != 1 || got[0] != want {
				t.Fatalf("step %d, %s: of %s there are rules of %v", step, mode, f, got)
			}
		}
		if !start {
			start = true
			go func() { // new clients connect all the time
				defer close(failures)
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if got, _, _,
						err := probe(g.podB, "tcp", s.Spec.ClusterIP+":80", longTimeout); got != outcomeReached {
						failures <- fmt.Errorf("a new connection: %s, %v", got, err)
						return
					}
				}
			}()
		}
		for name, say := range talks {
			if err := say(fmt.Sprint("step ", step)); err != nil {
				t.Errorf("step %d, %s: the connection of %s: %v", step, mode, name, err)
			}
		}
		if mode == modeUserspace {
			continue // connections that the proxy itself forwards end with it
		}
		for _, to := range []string{s.Spec.ClusterIP + ":80", "[" + s.Spec.ClusterIPs[1] + "]:80"} {
			talks[fmt.Sprintf("step %d (%s) to %s", step, mode, to)] = openConnection(t, g.podB, to)
		}
		talks[fmt.Sprintf("step %d (%s) from outside", step, mode)] = openConnection(t, g.outside,
			fmt.Sprintf("10.0.0.1:%d", s.Spec.Ports[0].NodePort))
	}
	close(stop)
	if err := <-failures; err != nil {
		t.Error(err)
	}
}

// An edit by another program before our change is detected afterwards, and not taken for correct.
// Proves S28.
func TestAForeignEditIsDetectedAfterAChange(t *testing.T) {
	t.Cleanup(func() {
		if err := errors.Join(iptables.RemoveChains(nft.IPv4), kernel.Remove(nft.IPv4, rules.TableName)); err != nil {
			t.Error(err)
		}
	})
	for mode, edit := range map[string]string{
		modeNFTables: "nft add chain ip " + rules.TableName + " more", modeIPTables: "iptables -t nat -F " +
			"KUBE-NODEPORTS",
	} {
		c, err := newRuleBackend(mode, nft.IPv4, testMachine, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range manyPorts(2) {
			if i == 0 {
				p.NodePort = 30080
			}
			if err := c.SetService(p.Namespace+"/"+p.Service, []rules.Port{p}); err != nil {
				t.Fatal(err)
			}
			if err := c.Apply(); err != nil {
				t.Fatal(err)
			}
			if c, ok := c.(*iptablesBackend); ok && i == 0 {
				if now, err := kernel.Generation(); err != nil || c.generation != now {
					t.Errorf("a change that was ours alone left generation %d, and it is %d, %v", c.generation, now,
						err)
				}
			}
			if isIntact, err := c.IsIntact(true); err != nil || isIntact != (i == 0) {
				t.Errorf("%s, after change %d: intact is %t, %v", mode, i, isIntact, err)
			}
			words := strings.Fields(edit)
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %s", edit, out)
			}
		}
	}
}

// The kernel selects endpoints at random, and the proxy itself in turn. Session affinity is kept.
// Proves S28.
func TestAllModesSpreadConnections(t *testing.T) {
	g := newTestNetwork(t)
	for _, mode := range []string{modeNFTables, modeIPTables, modeUserspace} {
		t.Run(mode, func(t *testing.T) {
			d := machineA(t, mode)
			plain, sticky := matrixService(0), matrixService(1)
			sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			d.putService(t, plain, newSlices(plain.Name, 2, 102)...)
			d.putService(t, sticky, newSlices(sticky.Name, 2, 102)...)
			for _, ip := range plain.Spec.ClusterIPs {
				to, turns, counts, last := net.JoinHostPort(ip, "80"), 0, map[string]int{}, ""
				for range 60 {
					got, server, _, err := probe(g.podB, "tcp", to, longTimeout)
					if got != outcomeReached {
						t.Fatalf("%s: %s, %v", to, got, err)
					}
					if counts[server]++; server != last {
						turns++
					}
					last = server
				}
				if inTurn := turns == 60; len(counts) != 2 || inTurn != (mode == modeUserspace) {
					t.Errorf("%s: %v, %d changes in 60 connections", to, counts, turns)
				}
			}
			for _, ip := range sticky.Spec.ClusterIPs {
				to, seen := net.JoinHostPort(ip, "80"), map[string]bool{}
				for range 20 {
					got, server, _, err := probe(g.podB, "tcp", to, longTimeout)
					if got != outcomeReached {
						t.Fatalf("%s: %s, %v", to, got, err)
					}
					seen[server] = true
				}
				if len(seen) != 1 {
					t.Errorf("a client with affinity to %s was sent to %v", to, seen)
				}
			}
			// Flushed rules are restored.
			flush := []string{"nft", "flush", "table", "ip", rules.TableName}
			if mode == modeIPTables {
				flush = []string{"iptables", "-t", "nat", "-F"}
			}
			if out, err := exec.Command(flush[0], flush[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%s", out)
			}
			if d.isIntact(false) {
				t.Error("the flushed rules are not noticed")
			}
			if err := d.sync(); err != nil {
				t.Fatal(err)
			}
			if got, _, _, err := probe(g.podB, "tcp", plain.Spec.ClusterIP+":80", longTimeout); got != outcomeReached {
				t.Errorf("after a flush: %s, %v", got, err)
			}
			// A removed endpoint gets no more connections.
			d.putService(t, plain, newSlices(plain.Name, 102)...)
			for range 10 {
				if got, server, _,
					err := probe(g.podB, "tcp", plain.Spec.ClusterIP+":80", longTimeout); got != outcomeReached ||
					server != "10.244.1.2:8080" {
					t.Errorf("%s by %s, %v", got, server, err)
				}
			}
		})
	}
}
