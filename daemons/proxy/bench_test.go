package proxy

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/daemons/proxy/iptables"
	"clusterctl/daemons/proxy/rules"
)

// BenchmarkConnections opens connections to one service among many in each mode. It measures the first packet, and how
// many connections two clients open in a second.
func BenchmarkConnections(b *testing.B) {
	const backend = "10.244.0.1:8080"
	ipOf(b, "addr", "add", "10.244.0.1/32", "dev", "lo")
	ipOf(b, "route", "add", "11.0.0.0/8", "dev", "lo")
	b.Cleanup(func() {
		ipOf(b, "addr", "del", "10.244.0.1/32", "dev", "lo")
		ipOf(b, "route", "del", "11.0.0.0/8", "dev", "lo")
	})
	ln, err := net.Listen("tcp", backend)
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for _, mode := range []string{modeNFTables, modeIPTables, modeUserspace} {
		sizes := []int{10, 40000}
		if mode == modeIPTables {
			sizes = []int{10, 10000} // the iptables programs would take minutes for more
		}
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%d", mode, n), func(b *testing.B) {
				r := &userspaceRelays{log: slog.New(slog.DiscardHandler)}
				c, err := newRuleBackend(mode, nft.IPv4, testMachine, r, r.log)
				if err != nil {
					b.Fatal(err)
				}
				ctx := b.Context()
				done := make(chan error, 1)
				go func() { done <- r.serve(ctx) }()
				ports := manyPorts(n)
				target := ports[5] // in the middle: other services' names come before and after it
				target.Endpoints = []rules.Endpoint{{To: netip.MustParseAddrPort(backend), Local: true}}
				ports[5] = target
				for _, p := range ports {
					if err := c.SetService(p.Namespace+"/"+p.Service, []rules.Port{p}); err != nil {
						b.Fatal(err)
					}
				}
				if err := c.Apply(); err != nil {
					b.Fatal(err)
				}
				to := netip.AddrPortFrom(target.ClusterIP, target.Port).String()
				measureConnections(b, to)
				if err := kernel.Remove(nft.IPv4, rules.TableName); err != nil {
					b.Fatal(err)
				}
				if err := iptables.RemoveChains(nft.IPv4); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// measureConnections opens connections to an address, one after the other and then from two clients at a time.
func measureConnections(b *testing.B, to string) {
	open := func() time.Duration {
		start := time.Now()
		c, err := net.DialTimeout("tcp", to, 5*time.Second)
		if err != nil {
			b.Error(err)
			return 0
		}
		took := time.Since(start)
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
		return took
	}
	var first []time.Duration
	for range 300 {
		first = append(first, open())
	}
	slices.Sort(first)
	b.ResetTimer()
	var opened atomic.Int64
	start := time.Now()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			for time.Since(start) < 2*time.Second {
				open()
				opened.Add(1)
			}
		})
	}
	both.Wait()
	b.ReportMetric(float64(first[len(first)/2].Microseconds()), "first-us")
	b.ReportMetric(float64(opened.Load())/time.Since(start).Seconds(), "conn/s")
}

// BenchmarkEndpointByIPTables changes one endpoint in iptables mode. The CPU time includes the called programs.
func BenchmarkEndpointByIPTables(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, err := newIPTablesBackend(nft.IPv4, testMachine, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			ports := manyPorts(n)
			put := func(ports ...rules.Port) {
				for _, p := range ports {
					if err := c.SetService(p.Namespace+"/"+p.Service, []rules.Port{p}); err != nil {
						b.Fatal(err)
					}
				}
				if err := c.Apply(); err != nil {
					b.Fatal(err)
				}
			}
			put(ports...)
			b.ResetTimer()
			before := cpuTime(b) + childCPUTime(b)
			for i := range b.N {
				p := ports[i%n]
				if i/n%2 == 0 {
					p.Endpoints = p.Endpoints[:1]
				}
				put(p)
			}
			b.ReportMetric((cpuTime(b)+childCPUTime(b)-before).Seconds()*1e3/float64(b.N), "cpu-ms/op")
			b.StopTimer()
			if err := iptables.RemoveChains(nft.IPv4); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkMemory measures the memory of an idle daemon with 10,000 services with two endpoints each.
func BenchmarkMemory(b *testing.B) {
	d := machineA(b, modeNFTables)
	for i, p := range manyPorts(10000) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Service}}
		s.Spec.ClusterIP, s.Spec.ClusterIPs = p.ClusterIP.String(), []string{p.ClusterIP.String()}
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
		name, port, proto, node := "http", int32(8080), corev1.ProtocolTCP, fmt.Sprint("node-", i%100)
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.Namespace,
				Name:      p.Service,
				Labels:    map[string]string{discoveryv1.LabelServiceName: p.Service},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}},
		}
		for _, e := range p.Endpoints {
			slice.Endpoints = append(slice.Endpoints,
				discoveryv1.Endpoint{Addresses: []string{e.To.Addr().String()}, NodeName: &node})
		}
		if err := d.services.Add(s); err != nil {
			b.Fatal(err)
		}
		if err := d.slices.Add(slice); err != nil {
			b.Fatal(err)
		}
		d.queueService(s)
	}
	if err := d.sync(); err != nil {
		b.Fatal(err)
	}
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	var kib float64
	if _, err := fmt.Sscan(string(rest), &kib); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(kib/1024, "anon-MiB")
	if err := kernel.Remove(nft.IPv4, rules.TableName); err != nil {
		b.Fatal(err)
	}
}
